"""The names that jobs have: of tasks, queues, errors and workers. Each statement reads a limited number of rows."""

from __future__ import annotations

import re
from typing import Any

from django_graphile_worker.sql.jobs import HAS_FAILED
from django_graphile_worker.sql.statements import statement

MAX_NAMES = 2_000
MAX_ERROR_NAMES = 500
# Of how many of the newest queues the names are compared with a text, and how many of them a search means: a text may
# be a part of the names of very many queues.
MAX_COMPARED_QUEUES = 10_000
MAX_MATCHING_QUEUES = 200

KNOWN_TASKS = "/* gw:known-tasks */ select identifier from :SCHEMA._private_tasks order by identifier limit %s"

SOME_QUEUES = "/* gw:some-queues */ select queue_name from :SCHEMA._private_job_queues order by id desc limit %s"

MEANING = """/* gw:meaning */
select exists (select from :SCHEMA._private_tasks where identifier = %(word)s),
    exists (select from :SCHEMA._private_job_queues where queue_name = %(word)s)"""

MATCHING_TASKS = f"""/* gw:matching-tasks */
select identifier from :SCHEMA._private_tasks
where lower(identifier) like %s::text order by identifier limit {MAX_NAMES}"""

MATCHING_QUEUES = f"""/* gw:matching-queues */
with newest as materialized (
    select queue_name from :SCHEMA._private_job_queues order by id desc limit {MAX_COMPARED_QUEUES})
select queue_name from newest where lower(queue_name) like %s::text limit {MAX_MATCHING_QUEUES}"""

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


def known_tasks(cursor: Any, *, schema: str) -> list[str]:
    """Return the task identifiers that jobs have had or workers run, up to a limit."""
    cursor.execute(statement(KNOWN_TASKS, schema), [MAX_NAMES])
    return [row[0] for row in cursor.fetchall()]


def some_queues(cursor: Any, *, schema: str) -> list[str]:
    """Return the names of the newest queues, up to a limit: there may be any number of queues."""
    cursor.execute(statement(SOME_QUEUES, schema), [MAX_NAMES])
    return [row[0] for row in cursor.fetchall()]


def meaning(cursor: Any, word: str, *, schema: str) -> tuple[bool, bool]:
    """Return whether a word is a task identifier, and whether it is the name of a queue."""
    cursor.execute(statement(MEANING, schema), {"word": word})
    is_task, is_queue = cursor.fetchone()
    return is_task, is_queue


def tasks_containing(cursor: Any, text: str, *, schema: str) -> list[str]:
    """Return the tasks whose names contain a text, in upper or lower case."""
    cursor.execute(statement(MATCHING_TASKS, schema), [_pattern(text)])
    return [row[0] for row in cursor.fetchall()]


def queues_containing(cursor: Any, text: str, *, schema: str) -> list[str]:
    """Return the queues whose names contain a text, in upper or lower case, among the newest queues."""
    cursor.execute(statement(MATCHING_QUEUES, schema), [_pattern(text)])
    return [row[0] for row in cursor.fetchall()]


def _pattern(text: str) -> str:
    return "%" + re.sub(r"([\\%_])", r"\\\1", text.lower()) + "%"


def known_error_names(cursor: Any, *, schema: str) -> list[str]:
    """Return the names of the errors with which jobs failed, up to a limit."""
    cursor.execute(statement(ERROR_NAMES, schema))
    return list(dict.fromkeys(row[0] for row in cursor.fetchall()))


def registered_workers(cursor: Any, *, schema: str) -> list[tuple[str, str]]:
    """Return the id and the host of each registered worker."""
    cursor.execute(statement(WORKERS, schema))
    return [(row[0], row[1]) for row in cursor.fetchall()]
