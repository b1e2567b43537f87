"""Names that match a text for LIKE. A look that ended at its limit returns None instead of names, or says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from django_graphile_worker.job_flags import without_run_flags
from django_graphile_worker.sql.inspection.job_search.walk_choice import MOST_QUEUES
from django_graphile_worker.sql.jobs import HAS_FAILED
from django_graphile_worker.sql.statements import statement

MOST_TASKS = 2_000
# How many names of queues and how many job keys a look reads.
MOST_LOOKED_AT = 10_000
MOST_KEYS = 500
MOST_FLAG_SETS = 500
MOST_FLAGGED = 500
MOST_ERROR_NAMES = 500

TASKS = """/* gw:matching-tasks */
select identifier from :SCHEMA._private_tasks
where {name} like any (%(patterns)s::text[]) order by identifier limit %(most)s"""

QUEUES = """/* gw:matching-queues */
with looked_at as materialized (
    select queue_name from :SCHEMA._private_job_queues order by id desc limit %(most_looked_at)s)
select (select count(*) from looked_at), array(
    select queue_name from looked_at where {name} like any (%(patterns)s::text[]) limit %(most)s)"""

# The index of keys has the keys that begin with a text close to each other, in the order of any collation.
KEYS = """/* gw:matching-keys */
with looked_at as materialized (
    select job.key from :SCHEMA._private_jobs as job
    where job.key is not null and job.key >= %(beginning)s::text order by job.key limit %(most_looked_at)s)
select (select count(*) from looked_at), array(
    select key from looked_at where {name} like any (%(patterns)s::text[]) limit %(most)s)"""

# The flags of the newest jobs.
FLAGS = f"""/* gw:known-flags */
select distinct flag from (
    select job.flags from :SCHEMA._private_jobs as job order by job.id desc limit {MOST_FLAGGED}) as newest
cross join lateral jsonb_object_keys(
    case when jsonb_typeof(newest.flags) = 'object' then newest.flags else '{{}}' end) as flag
limit {MOST_FLAG_SETS}"""

_NAME = ":SCHEMA._private_error_name(job.last_error)"
ERROR_NAMES = f"""/* gw:error-names */
with recursive found (task_id, is_available, name) as (
    select task.id, half.is_available, first_job.name from :SCHEMA._private_tasks as task
    cross join unnest(array[true, false]) as half(is_available)
    cross join lateral (
        select {_NAME} as name from :SCHEMA._private_jobs as job
        where job.task_id = task.id and job.is_available = half.is_available and {HAS_FAILED} and {_NAME} is not null
        order by {_NAME} limit 1) as first_job
    union all
    select found.task_id, found.is_available, next_job.name from found
    cross join lateral (
        select {_NAME} as name from :SCHEMA._private_jobs as job
        where job.task_id = found.task_id and job.is_available = found.is_available and {HAS_FAILED}
            and {_NAME} > found.name
        order by {_NAME} limit 1) as next_job)
select name from found limit {MOST_ERROR_NAMES + 1}"""

WORKERS = """/* gw:worker-names */
select worker.id, coalesce(left(worker.metadata ->> 'host', 200), '') from :SCHEMA._private_workers as worker
order by worker.id limit 1000"""


class Look(NamedTuple):
    """Names that were found, and whether there may be more."""

    names: tuple[str, ...]
    is_complete: bool


def matching_tasks(cursor: Any, patterns: Sequence[str], *, schema: str, folds_case: bool = False) -> Look:
    """Return the tasks that match one of the patterns. With ``folds_case``, the patterns are in lower case."""
    text = TASKS.format(name=_folded("identifier", folds_case))
    cursor.execute(statement(text, schema), {"patterns": list(patterns), "most": MOST_TASKS + 1})
    names = tuple(row[0] for row in cursor.fetchall())
    return Look(names[:MOST_TASKS], len(names) <= MOST_TASKS)


def matching_queues(cursor: Any, patterns: Sequence[str], *, schema: str, folds_case: bool = False) -> Look:
    """Return the queues that match one of the patterns, among the newest queues."""
    text = QUEUES.format(name=_folded("queue_name", folds_case))
    return _look(cursor, statement(text, schema), patterns, MOST_QUEUES)


def matching_keys(cursor: Any, patterns: Sequence[str], *, schema: str, folds_case: bool = False) -> Look:
    """Return the job keys that match one of the patterns, among those that a look reads."""
    text = KEYS.format(name=_folded("key", folds_case))
    beginnings = [] if folds_case else [_beginning(pattern) for pattern in patterns]
    # Several patterns begin in several places: the look begins at the first key.
    beginning = beginnings[0] if len(beginnings) == 1 else ""
    return _look(cursor, statement(text, schema), patterns, MOST_KEYS, beginning=beginning)


def _look(cursor: Any, text: str, patterns: Sequence[str], most: int, **parameters: Any) -> Look:
    limits = {"most_looked_at": MOST_LOOKED_AT + 1, "most": most + 1}
    cursor.execute(text, {"patterns": list(patterns), **limits, **parameters})
    looked_at, names = cursor.fetchone()
    return Look(tuple(names[:most]), looked_at <= MOST_LOOKED_AT and len(names) <= most)


def _folded(name: str, folds_case: bool) -> str:
    return f"lower({name})" if folds_case else name


def _beginning(pattern: str) -> str:
    """Return the text before the first wildcard of a pattern."""
    found = re.match(r"(?:[^%_\\]|\\.)*", pattern, re.DOTALL)
    return re.sub(r"\\(.)", r"\1", found[0], flags=re.DOTALL) if found else ""


def known_flags(cursor: Any, *, schema: str) -> list[str]:
    """Return the flags of available jobs without a queue, up to a limit, without those of runs of schedules."""
    cursor.execute(statement(FLAGS, schema))
    return sorted(without_run_flags(row[0] for row in cursor.fetchall()))


def known_error_names(cursor: Any, *, schema: str) -> Look:
    """Return the names of the errors with which jobs failed."""
    cursor.execute(statement(ERROR_NAMES, schema))
    names = [row[0] for row in cursor.fetchall()]
    return Look(tuple(dict.fromkeys(names)), len(names) <= MOST_ERROR_NAMES)


def registered_workers(cursor: Any, *, schema: str) -> list[tuple[str, str]]:
    """Return the id and the host of each registered worker."""
    cursor.execute(statement(WORKERS, schema))
    return [(row[0], row[1]) for row in cursor.fetchall()]
