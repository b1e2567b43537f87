"""Names of tasks and queues for suggestions, and the meaning of a word in a search: a task, a queue or a job key."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.statements import statement

MOST_NAMES = 2_000

TASKS = "/* gw:known-tasks */ select identifier from :SCHEMA._private_tasks order by identifier limit %s"

QUEUES = "/* gw:some-queues */ select queue_name from :SCHEMA._private_job_queues order by id desc limit %s"

MEANING = """/* gw:meaning */
select exists (select from :SCHEMA._private_tasks where identifier = %(word)s),
    exists (select from :SCHEMA._private_job_queues where queue_name = %(word)s),
    exists (select from :SCHEMA._private_jobs where key = %(word)s)"""


def known_tasks(cursor: Any, *, schema: str) -> list[str]:
    """Return the task identifiers that jobs have had or workers run, up to a limit."""
    cursor.execute(statement(TASKS, schema), [MOST_NAMES])
    return [row[0] for row in cursor.fetchall()]


def some_queues(cursor: Any, *, schema: str) -> list[str]:
    """Return the names of the newest queues, up to a limit: there may be any number of queues."""
    cursor.execute(statement(QUEUES, schema), [MOST_NAMES])
    return [row[0] for row in cursor.fetchall()]


def meaning(cursor: Any, word: str, *, schema: str) -> tuple[bool, bool, bool]:
    """Return three values: whether a word is a task identifier, the name of a queue, and a job key."""
    cursor.execute(statement(MEANING, schema), {"word": word})
    is_task, is_queue, is_key = cursor.fetchone()
    return is_task, is_queue, is_key
