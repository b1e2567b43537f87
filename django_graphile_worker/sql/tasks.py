"""Task identifiers and the ids of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.statements import statement

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
PATHS_AFTER = """/* gw:task-paths */
select task.id, task.identifier
from :SCHEMA._private_tasks as task
where task.id > %(after)s::int and pg_catalog.strpos(task.identifier, '.') > 0
order by task.id desc limit %(most)s::int"""


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


def paths_after(cursor: Any, after: int, *, most: int, schema: str) -> dict[int, str]:
    """Return the newest identifiers with a dot and an id above ``after``, by id."""
    cursor.execute(statement(PATHS_AFTER, schema), {"after": after, "most": most})
    return dict(cursor.fetchall())
