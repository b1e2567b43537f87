"""Doing something with all jobs that meet some criteria: one statement each, through the schema's functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django_graphile_worker.sql.inspection.criteria import Criteria
from django_graphile_worker.sql.inspection.search import ids_of_all
from django_graphile_worker.sql.jobs import Changes, moment
from django_graphile_worker.sql.schema import statement

# Locks of so many rows are held until the statement ends. Whoever has more does it again.
MOST_CHANGED = 50_000
# How many ids an audit entry names.
MOST_NAMED = 1_000

FUNCTIONS = {
    "complete": ":SCHEMA.complete_jobs(chosen.ids)",
    "fail": ":SCHEMA.permanently_fail_jobs(chosen.ids, %(reason)s::text)",
    "reschedule": """:SCHEMA.reschedule_jobs(
        chosen.ids, coalesce(%(run_at)s::timestamptz, now() + %(delay)s::float8 * interval '1 second'),
        %(new_priority)s::int, %(attempts)s::int, %(max_attempts)s::int)""",
}

SILENCE = "/* gw:silence */ select set_config('graphile_worker.notify', 'off', true)"


class Changed(NamedTuple):
    """What became of a change: jobs found, jobs changed, and the ids of the first of them."""

    found: int
    changed: int
    ids: list[int]

    @property
    def left_alone(self) -> int:
        return self.found - self.changed


def complete_all(cursor: Any, criteria: Criteria, *, schema: str, most: int = MOST_CHANGED) -> Changed:
    """Delete jobs as if they had succeeded."""
    return _call(cursor, "complete", criteria, {}, schema=schema, most=most)


def fail_all(cursor: Any, criteria: Criteria, reason: str | None, *, schema: str, most: int = MOST_CHANGED) -> Changed:
    """Let jobs have failed for good."""
    return _call(cursor, "fail", criteria, {"reason": reason}, schema=schema, most=most)


def reschedule_all(
    cursor: Any, criteria: Criteria, changes: Changes, *, schema: str, notify: bool, most: int = MOST_CHANGED
) -> Changed:
    """Change when and how jobs run. Silence lasts for the transaction, which is the caller's own."""
    if not notify:
        cursor.execute(SILENCE)
    run_at, delay = moment(changes.run_at)
    parameters = {
        "run_at": run_at,
        "delay": delay,
        "new_priority": changes.priority,
        "attempts": changes.attempts,
        "max_attempts": changes.max_attempts,
    }
    return _call(cursor, "reschedule", criteria, parameters, schema=schema, most=most)


def _call(
    cursor: Any, function: str, criteria: Criteria, parameters: Mapping[str, Any], *, schema: str, most: int
) -> Changed:
    ids, found = ids_of_all(criteria, most=most)
    text = f"""/* gw:{function}-all */
    with chosen as materialized (select array({ids}) as ids),
    changed as (select job.id from chosen cross join lateral {FUNCTIONS[function]} as job)
    select (select cardinality(ids) from chosen), count(*),
        coalesce((array_agg(id order by id))[1:{MOST_NAMED}], '{{}}')
    from changed"""
    cursor.execute(statement(text, schema), {**found, **parameters})
    return Changed(*cursor.fetchone())
