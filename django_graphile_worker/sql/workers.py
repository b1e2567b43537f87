"""The register of live workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_graphile_worker.sql.schema import quoted, statement

# Every holder of ours begins like this, so a claim that commits after its worker
# was swept is still known for what it is.
WORKER_PREFIX = "django-worker-"
# A lock this old is renewed while its worker lives, long before anybody calls it stale.
RENEWAL_SECONDS = 3600

# Nobody waits for the disk: a claim's own commit comes later in the same log, so where a claim is to be found after a
# crash of the server, its worker is too.
REGISTER_WORKER = """/* gw:register-worker */
insert into :SCHEMA._private_workers (id, metadata, started_at, last_heartbeat_at)
select %(worker_id)s, %(metadata)s::jsonb, coalesce(%(now)s::timestamptz, now()), coalesce(%(now)s::timestamptz, now())
from set_config('synchronous_commit', 'off', true)"""

# The notification proves that the listener hears what others send.
BEAT = """/* gw:beat */
update :SCHEMA._private_workers
set last_heartbeat_at = coalesce(%(now)s::timestamptz, now()), metadata = %(metadata)s::jsonb
where id = %(worker_id)s
returning case when %(channel)s::text is not null then pg_notify(%(channel)s::text, '') is not null end"""

# The claims of long jobs stay young. A cancelled job must stay recognisable: its
# updated_at keeps its place after locked_at.
RENEW_CLAIMS = """/* gw:renew */
with renewed_queue as (
    update :SCHEMA._private_job_queues
    set locked_at = now()
    where :SCHEMA._private_worker_of(locked_by) = %(worker_id)s
    and locked_at < now() - interval '1 second' * %(older_than)s::float8
)
update :SCHEMA._private_jobs
set locked_at = now(),
    updated_at = case when updated_at > locked_at then now() + interval '1 microsecond' else updated_at end
where :SCHEMA._private_worker_of(locked_by) = %(worker_id)s
    and locked_at < now() - interval '1 second' * %(older_than)s::float8"""

DEREGISTER_WORKER = """/* gw:deregister-worker */
delete from :SCHEMA._private_workers as worker
where worker.id = %(worker_id)s and not exists (
    select from :SCHEMA._private_jobs as job
    where job.locked_at is not null and :SCHEMA._private_worker_of(job.locked_by) = worker.id)"""

LIVE_TASKS = """/* gw:live-tasks */
select distinct jsonb_array_elements_text(coalesce(metadata -> 'tasks', '[]')) from :SCHEMA._private_workers"""


def worker_of(locked_by: str) -> str:
    """The worker of a lock: a worker of ours writes its id, a slash and the number of its claim into locked_by."""
    return locked_by.partition("/")[0] if locked_by.startswith(WORKER_PREFIX) else locked_by


def worker_of_column(column: str, *, schema: str) -> str:
    """The same, as an expression over a column, for statements whose text somebody else makes."""
    return f"{quoted(schema)}._private_worker_of({column})"


def register_worker(
    cursor: Any, worker_id: str, metadata: Mapping[str, Any], *, schema: str, now: datetime | None = None
) -> None:
    parameters = {"worker_id": worker_id, "metadata": json.dumps(metadata), "now": now}
    cursor.execute(statement(REGISTER_WORKER, schema), parameters)


def beat(
    cursor: Any,
    worker_id: str,
    metadata: Mapping[str, Any],
    *,
    schema: str,
    channel: str | None = None,
    now: datetime | None = None,
) -> bool:
    """Say "alive"; False when the register no longer knows this worker."""
    cursor.execute(
        statement(BEAT, schema),
        {"worker_id": worker_id, "metadata": json.dumps(metadata), "channel": channel, "now": now},
    )
    return cursor.fetchone() is not None


def renew_claims(cursor: Any, worker_id: str, *, schema: str, older_than: float = RENEWAL_SECONDS) -> None:
    cursor.execute(statement(RENEW_CLAIMS, schema), {"worker_id": worker_id, "older_than": older_than})


def deregister_worker(cursor: Any, worker_id: str, *, schema: str) -> None:
    """Leave the register, unless jobs are still held: then the sweep must find this worker."""
    cursor.execute(statement(DEREGISTER_WORKER, schema), {"worker_id": worker_id})


def live_task_identifiers(cursor: Any, *, schema: str) -> set[str]:
    """The tasks that registered workers say they run."""
    cursor.execute(statement(LIVE_TASKS, schema))
    return {row[0] for row in cursor.fetchall()}
