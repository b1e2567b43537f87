"""Task names and their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_graphile_worker.sql.arrays import text_array
from django_graphile_worker.sql.schema import statement

# In name order, and only what is missing: two workers that start together do not
# wait for each other in a circle, and no identity is burnt.
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


def register_tasks(cursor: Any, identifiers: Sequence[str], *, schema: str) -> dict[int, str]:
    """Make sure that these names exist; return them by their ids."""
    known = task_ids(cursor, identifiers, schema=schema)
    if len(known) < len(set(identifiers)):
        cursor.execute(statement(REGISTER_TASKS, schema), {"identifiers": text_array(sorted(set(identifiers)))})
        known = task_ids(cursor, identifiers, schema=schema)
    return known


def task_ids(cursor: Any, identifiers: Sequence[str], *, schema: str) -> dict[int, str]:
    """The names that exist, by their ids."""
    cursor.execute(statement(TASK_IDS, schema), {"identifiers": text_array(identifiers)})
    return dict(cursor.fetchall())
