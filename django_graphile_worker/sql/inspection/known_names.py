"""The names that jobs have: tasks, queues, keys, flags, errors and workers, for searches and for their completion.

Each statement reads a limited number of rows, and its function says whether it has seen all names, or returns None.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django_graphile_worker.job_flags import without_run_flags
from django_graphile_worker.sql.inspection.job_search.criteria import Subquery
from django_graphile_worker.sql.inspection.job_search.walk_choice import MOST_QUEUES
from django_graphile_worker.sql.jobs import HAS_FAILED
from django_graphile_worker.sql.statements import statement

MAX_NAMES = 2_000

KNOWN_TASKS = "/* gw:known-tasks */ select identifier from :SCHEMA._private_tasks order by identifier limit %s"

SOME_QUEUES = "/* gw:some-queues */ select queue_name from :SCHEMA._private_job_queues order by id desc limit %s"

MEANING = """/* gw:meaning */
select exists (select from :SCHEMA._private_tasks where identifier = %(word)s),
    exists (select from :SCHEMA._private_job_queues where queue_name = %(word)s),
    exists (select from :SCHEMA._private_jobs where key = %(word)s)"""


def known_tasks(cursor: Any, *, schema: str) -> list[str]:
    """Return the task identifiers that jobs have had or workers run, up to a limit."""
    cursor.execute(statement(KNOWN_TASKS, schema), [MAX_NAMES])
    return [row[0] for row in cursor.fetchall()]


def some_queues(cursor: Any, *, schema: str) -> list[str]:
    """Return the names of the newest queues, up to a limit: there may be any number of queues."""
    cursor.execute(statement(SOME_QUEUES, schema), [MAX_NAMES])
    return [row[0] for row in cursor.fetchall()]


def meaning(cursor: Any, word: str, *, schema: str) -> tuple[bool, bool, bool]:
    """Return three values: whether a word is a task identifier, the name of a queue, and a job key."""
    cursor.execute(statement(MEANING, schema), {"word": word})
    is_task, is_queue, is_key = cursor.fetchone()
    return is_task, is_queue, is_key


MAX_TASKS = 2_000
# How many names of queues and how many job keys a look reads.
MAX_EXAMINED = 10_000
MAX_KEYS = 500
MAX_FLAG_SETS = 500
MAX_FLAGGED = 500
MAX_ERROR_NAMES = 500

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
    select job.flags from :SCHEMA._private_jobs as job order by job.id desc limit {MAX_FLAGGED}) as newest
cross join lateral jsonb_object_keys(
    case when jsonb_typeof(newest.flags) = 'object' then newest.flags else '{{}}' end) as flag
limit {MAX_FLAG_SETS}"""

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
select name from found limit {MAX_ERROR_NAMES + 1}"""

WORKERS = """/* gw:worker-names */
select worker.id, coalesce(left(worker.metadata ->> 'host', 200), '') from :SCHEMA._private_workers as worker
order by worker.id limit 1000"""


class Names(NamedTuple):
    """Names that were found, and whether there may be more."""

    names: tuple[str, ...]
    is_complete: bool


def matching_tasks(cursor: Any, patterns: Sequence[str], *, schema: str, folds_case: bool = False) -> Names:
    """Return the tasks that match one of the patterns. With ``folds_case``, the patterns are in lower case."""
    text = TASKS.format(name=_folded("identifier", folds_case))
    cursor.execute(statement(text, schema), {"patterns": list(patterns), "most": MAX_TASKS + 1})
    names = tuple(row[0] for row in cursor.fetchall())
    return Names(names[:MAX_TASKS], len(names) <= MAX_TASKS)


def matching_queues(cursor: Any, patterns: Sequence[str], *, schema: str, folds_case: bool = False) -> Names:
    """Return the queues that match one of the patterns, among the newest queues."""
    text = QUEUES.format(name=_folded("queue_name", folds_case))
    return _names(cursor, statement(text, schema), patterns, MOST_QUEUES)


def matching_keys(cursor: Any, patterns: Sequence[str], *, schema: str, folds_case: bool = False) -> Names:
    """Return the job keys that match one of the patterns, among those that a look reads."""
    text = KEYS.format(name=_folded("key", folds_case))
    beginnings = [] if folds_case else [_beginning(pattern) for pattern in patterns]
    # Several patterns begin in several places: the look begins at the first key.
    beginning = beginnings[0] if len(beginnings) == 1 else ""
    return _names(cursor, statement(text, schema), patterns, MAX_KEYS, beginning=beginning)


def _names(cursor: Any, text: str, patterns: Sequence[str], most: int, **parameters: Any) -> Names:
    limits = {"most_looked_at": MAX_EXAMINED + 1, "most": most + 1}
    cursor.execute(text, {"patterns": list(patterns), **limits, **parameters})
    looked_at, names = cursor.fetchone()
    return Names(tuple(names[:most]), looked_at <= MAX_EXAMINED and len(names) <= most)


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


def known_error_names(cursor: Any, *, schema: str) -> Names:
    """Return the names of the errors with which jobs failed."""
    cursor.execute(statement(ERROR_NAMES, schema))
    names = [row[0] for row in cursor.fetchall()]
    return Names(tuple(dict.fromkeys(names)), len(names) <= MAX_ERROR_NAMES)


def registered_workers(cursor: Any, *, schema: str) -> list[tuple[str, str]]:
    """Return the id and the host of each registered worker."""
    cursor.execute(statement(WORKERS, schema))
    return [(row[0], row[1]) for row in cursor.fetchall()]


MAX_VISIBLE_EXAMINED = 5_000

VISIBLE = """/* gw:visible-names */
select task.identifier, queue.queue_name, job.key, left(job.flags::text, 1000),
    :SCHEMA._private_worker_of(job.locked_by),
    case when job.locked_at is null and job.attempts > 0 then :SCHEMA._private_error_name(job.last_error) end
from (select * from :SCHEMA._private_jobs as job order by job.id desc limit %(most)s) as job
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
where job.id in ({restriction})"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleNames:
    """How many of the newest jobs that a user may see have each name."""

    tasks: Counter[str]
    queues: Counter[str]
    keys: Counter[str]
    flags: Counter[str]
    workers: Counter[str]
    error_names: Counter[str]


def visible_names(cursor: Any, within: Subquery, *, schema: str, most: int = MAX_VISIBLE_EXAMINED) -> VisibleNames:
    """Return the names of the jobs that a user may see, among the newest jobs."""
    restriction, parameters = within.named()
    cursor.execute(statement(VISIBLE.format(restriction=restriction), schema), {**parameters, "most": most})
    rows = cursor.fetchall()
    columns = [[row[place] for row in rows if row[place] is not None] for place in range(6)]
    tasks, queues, keys, flags, workers, error_names = columns
    return VisibleNames(
        tasks=Counter(tasks),
        queues=Counter(queues),
        keys=Counter(keys),
        flags=Counter(flag for text in flags for flag in _flags(text)),
        workers=Counter(workers),
        error_names=Counter(error_names),
    )


def _flags(text: str) -> list[str]:
    try:
        flags = json.loads(text)
    except ValueError:
        return []
    return without_run_flags(flags) if isinstance(flags, dict) else []
