"""Problems that the list marks: items of the crontab that fail or missed times, and tasks that do not exist."""

from __future__ import annotations

from dataclasses import dataclass

from django_graphile_worker.admin.databases import Session
from django_graphile_worker.admin.project_items import read_crontab
from django_graphile_worker.models.schedules import find_task
from django_graphile_worker.sql.schedules import listing

# So many names of tasks are looked up: most schedules have one of a few tasks.
MOST_TASKS = 1_000


@dataclass(frozen=True, slots=True)
class Problems:
    """What the list marks."""

    # Items whose last run failed.
    failing_items: frozenset[str] = frozenset()
    # Items that missed times in the last day.
    missed_items: frozenset[str] = frozenset()
    # The tasks that schedules have, and those of them that this project does not have.
    tasks: frozenset[str] = frozenset()
    unknown_tasks: frozenset[str] = frozenset()


def read_problems(session: Session, *, sees_outcomes: bool = True) -> Problems:
    """Return all problems. How runs ended is left out for a user who may not see all jobs."""
    cursor, schema = session
    names = [item.name for item in read_crontab()[0]]
    tasks = listing.tasks(cursor, schema=schema, limit=MOST_TASKS)
    return Problems(
        failing_items=frozenset(listing.failing_crontabs(cursor, names, schema=schema) if sees_outcomes else ()),
        missed_items=frozenset(listing.missed_items(cursor, names, schema=schema)),
        tasks=frozenset(tasks),
        unknown_tasks=frozenset(task for task in tasks if find_task(task) is None),
    )
