"""The register of workers, the table ``_private_workers``, the ids of their tasks, and what wakes workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.statements import quoted, statement
from django_graphile_worker.text import escaped
from django_graphile_worker.versions import is_older

# The id of every worker of this package begins with this prefix. So a claim that commits after its worker was removed
# from the register is still recognised as the claim of a dead worker.
WORKER_PREFIX = "django-worker-"
# The age in seconds at which the lock of a live worker is renewed, long before it is stale for a worker of Node.js.
RENEWAL_SECONDS = 3600
# The seconds without a heartbeat after which a worker that states no timeout is dead, if no longer time is set. Workers
# of graphile_worker for Rust state none, and have five minutes among themselves.
RUST_TIMEOUT = 300.0

# The commit does not wait for the disk: the commit of a claim comes later in the same log, so if a claim survives a
# crash of the server, its worker's row does too.
# An id is random: an existing row with this id is this worker's own, from a try whose answer was lost.
REGISTER_WORKER = """/* gw:register-worker */
insert into :SCHEMA._private_workers
    (id, metadata, started_at, last_heartbeat_at, timeout_seconds, heartbeat_seconds)
select %(worker_id)s, %(metadata)s::jsonb, coalesce(%(now)s::timestamptz, pg_catalog.now()),
    coalesce(%(now)s::timestamptz, pg_catalog.now()), %(timeout)s::float8, %(heartbeat)s::float8
from pg_catalog.set_config('synchronous_commit', 'off', true)
on conflict (id) do update set last_heartbeat_at = excluded.last_heartbeat_at
returning pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())"""

BEAT = """/* gw:beat */
update :SCHEMA._private_workers
set last_heartbeat_at = coalesce(%(now)s::timestamptz, pg_catalog.now()), metadata = %(metadata)s::jsonb
where id = %(worker_id)s
returning pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())"""

RENEW_CLAIMS = """/* gw:renew */
select :SCHEMA._private_renew_claims(%(worker_id)s::text, %(older_than)s::float8, %(spared)s::bigint[])"""


def locked_by_worker(row: str, comparison: str) -> str:
    """Return the condition that the row, a job or a queue, is locked, and that the worker's id meets the comparison.

    The indexes of locked rows are partial: they serve only statements with the condition ``locked_at is not null``.
    """
    return f"{row}.locked_at is not null and :SCHEMA._private_worker_of({row}.locked_by) {comparison}"


DEREGISTER_WORKER = f"""/* gw:deregister-worker */
with stopped as (
    delete from :SCHEMA._private_workers as worker
    where worker.id = %(worker_id)s and not exists (
        select from only :SCHEMA._private_jobs as job
        where {locked_by_worker("job", "= worker.id")})
    returning worker.id, worker.metadata
)
select :SCHEMA._private_add_event('worker_stopped', 1, coalesce(stopped.metadata ->> 'host', stopped.id),
    jsonb_build_object('host', stopped.metadata -> 'host', 'pid', stopped.metadata -> 'pid',
        'reason', nullif(%(reason)s::text, '')), stopped.id)
from stopped"""

WAKE_WORKERS = "/* gw:wake */ select :SCHEMA._private_notify(%(count)s::bigint)"

LIVE_TASKS = """/* gw:live-tasks */
select distinct jsonb_array_elements_text(coalesce(metadata -> 'tasks', '[]')) from :SCHEMA._private_workers"""

# Sent over a connection of Django, so every name is qualified.
PROMISED_TIMEOUTS = """/* gw:promised-timeouts */
select distinct worker.timeout_seconds
from :SCHEMA._private_workers as worker
where worker.last_heartbeat_at operator(pg_catalog.>) (
    pg_catalog.now() operator(pg_catalog.-) pg_catalog.make_interval(secs => worker.timeout_seconds))
order by 1"""


def promised_timeouts(cursor: Any, *, schema: str) -> list[float]:
    """Return the different timeouts of live workers, in seconds, the shortest first."""
    cursor.execute(statement(PROMISED_TIMEOUTS, schema))
    return [row[0] for row in cursor.fetchall()]


# Sent over a connection of Django, so every name is qualified.
LIVE_VERSIONS = """/* gw:live-versions */
select coalesce(worker.metadata ->> 'host', worker.id), worker.metadata ->> 'pid', worker.metadata ->> 'version'
from :SCHEMA._private_workers as worker
where worker.last_heartbeat_at operator(pg_catalog.>) (
    pg_catalog.now() operator(pg_catalog.-) pg_catalog.make_interval(secs => worker.timeout_seconds))
order by worker.started_at, worker.id"""


def older_workers(cursor: Any, version: str, *, schema: str) -> list[str]:
    """Return the live workers of releases before this version: host, process id and version of each."""
    cursor.execute(statement(LIVE_VERSIONS, schema))
    return [
        escaped(f"{host} pid {pid} ({own})") for host, pid, own in cursor.fetchall() if own and is_older(own, version)
    ]


def is_lease_over(silent_seconds: float, timeout_seconds: float) -> bool:
    """Return True if a worker has been silent for so long that its lease has expired.

    Each worker registers its timeout. The recovery of jobs, the list of workers and the warning before an unlock all
    use this rule.
    """
    return silent_seconds >= timeout_seconds


def worker_of(locked_by: str) -> str:
    """Return the worker id in a ``locked_by``: a worker of this package writes its id, a slash and a number there."""
    return locked_by.partition("/")[0] if locked_by.startswith(WORKER_PREFIX) else locked_by


def worker_of_column(column: str, *, schema: str) -> str:
    """Return ``worker_of`` as an expression over a column, for statements that Django composes."""
    return f"{quoted(schema)}._private_worker_of({column})"


def register_worker(
    cursor: Any,
    worker_id: str,
    metadata: Mapping[str, Any],
    *,
    schema: str,
    timeout: float | None = None,
    heartbeat: float | None = None,
    now: datetime | None = None,
) -> float:
    """Register the worker, with the interval of its heartbeats and the timeout after which it counts as dead.

    Return the time of the server, in seconds since 1970.
    """
    lease = {"timeout": timeout, "heartbeat": heartbeat}
    parameters = {"worker_id": worker_id, "metadata": json.dumps(metadata), "now": now, **lease}
    cursor.execute(statement(REGISTER_WORKER, schema), parameters)
    return float(cursor.fetchone()[0])


def beat(
    cursor: Any, worker_id: str, metadata: Mapping[str, Any], *, schema: str, now: datetime | None = None
) -> float | None:
    """Write a heartbeat; return the time of the server in seconds since 1970, None if the worker is not registered."""
    parameters = {"worker_id": worker_id, "metadata": json.dumps(metadata), "now": now}
    cursor.execute(statement(BEAT, schema), parameters)
    row = cursor.fetchone()
    return None if row is None else float(row[0])


def renew_claims(cursor: Any, worker_id: str, *, schema: str, spared: Sequence[int] = ()) -> None:
    """Renew the old locks of a live worker, except the locks of jobs in ``spared``."""
    parameters = {"worker_id": worker_id, "older_than": RENEWAL_SECONDS, "spared": list(spared)}
    cursor.execute(statement(RENEW_CLAIMS, schema), parameters)


def deregister_worker(cursor: Any, worker_id: str, *, schema: str, reason: str = "") -> None:
    """Delete the worker's row, unless it still holds jobs: then a recovery must find this worker."""
    cursor.execute(statement(DEREGISTER_WORKER, schema), {"worker_id": worker_id, "reason": reason})


def live_task_identifiers(cursor: Any, *, schema: str) -> set[str]:
    """Return the identifiers of the tasks that registered workers run."""
    cursor.execute(statement(LIVE_TASKS, schema))
    return {row[0] for row in cursor.fetchall()}


def wake_workers(cursor: Any, count: int, *, schema: str) -> None:
    """Notify workers of this many new jobs, unless the server's queue of notifications is nearly full."""
    cursor.execute(statement(WAKE_WORKERS, schema), {"count": count})


# In the order of names, so that two workers that start together cannot deadlock. Only missing names, so that no value
# of the sequence is used up.
REGISTER_TASKS = """/* gw:register-tasks */
insert into :SCHEMA._private_tasks (identifier)
select name.identifier
from unnest(%(identifiers)s::text[]) as name(identifier)
where not exists (select from :SCHEMA._private_tasks as task where task.identifier = name.identifier)
order by name.identifier
on conflict (identifier) do nothing"""

TASK_IDS = """/* gw:task-ids */
select task.id, task.identifier
from :SCHEMA._private_tasks as task
where task.identifier = any (%(identifiers)s::text[])"""

# Names of tasks of this package mostly have no dot; those of Django tasks have at least one.
TASK_PATHS_AFTER = """/* gw:task-paths */
select task.id, task.identifier
from :SCHEMA._private_tasks as task
where task.id > %(after)s::int and pg_catalog.strpos(task.identifier, '.') > 0
order by task.id desc limit %(max_names)s::int"""


def register_tasks(cursor: Any, identifiers: Sequence[str], *, schema: str) -> dict[int, str]:
    """Insert the identifiers that are missing; return all these identifiers by id."""
    known = task_ids(cursor, identifiers, schema=schema)
    if len(known) < len(set(identifiers)):
        cursor.execute(statement(REGISTER_TASKS, schema), {"identifiers": text_array(sorted(set(identifiers)))})
        known = task_ids(cursor, identifiers, schema=schema)
    return known


def task_ids(cursor: Any, identifiers: Sequence[str], *, schema: str) -> dict[int, str]:
    """Return the identifiers that exist, by id."""
    cursor.execute(statement(TASK_IDS, schema), {"identifiers": text_array(identifiers)})
    return dict(cursor.fetchall())


def task_paths_after(cursor: Any, after: int, *, max_names: int, schema: str) -> dict[int, str]:
    """Return the newest identifiers with a dot and an id above ``after``, by id."""
    cursor.execute(statement(TASK_PATHS_AFTER, schema), {"after": after, "max_names": max_names})
    return dict(cursor.fetchall())
