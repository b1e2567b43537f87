"""Writes rows of runs of items of the crontab; ``sql.cron.crontab_ticks`` writes those of its ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_graphile_worker.run_flags import LONGEST_KEEP
from django_graphile_worker.sql.schema import statement

NOTE = """/* gw:note-crontab-run */
insert into :SCHEMA._private_schedule_runs (crontab_identifier, tick, job_id, kind, number, run_by)
values (%(identifier)s::text, coalesce(%(tick)s::timestamptz, clock_timestamp()), %(job_id)s::bigint, %(kind)s::text,
    %(number)s::int, %(run_by)s::text)"""

# Goes from one identifier to the next in the index. The outcomes of runs that are older have been deleted, too.
FORGET = f"""/* gw:forget-crontab-runs */
with recursive item (identifier) as (
    (select run.crontab_identifier from :SCHEMA._private_schedule_runs as run
    where run.crontab_identifier is not null order by run.crontab_identifier, run.id limit 1)
    union all
    select (select run.crontab_identifier from :SCHEMA._private_schedule_runs as run
        where run.crontab_identifier > item.identifier order by run.crontab_identifier, run.id limit 1)
    from item where item.identifier is not null
), forgotten as materialized (
    select item.identifier from item
    where item.identifier is not null and not exists (
        select from (
            select run.added_at from :SCHEMA._private_schedule_runs as run
            where run.crontab_identifier = item.identifier order by run.id desc limit 1) as latest
        join :SCHEMA._private_known_crontabs as known on known.identifier = item.identifier
        where latest.added_at > clock_timestamp() - interval '{LONGEST_KEEP.days} days')
)
delete from :SCHEMA._private_schedule_runs as run using forgotten
where run.crontab_identifier = forgotten.identifier"""


def note_missed(cursor: Any, identifier: str, *, tick: datetime, number: int, schema: str) -> None:
    """Note that so many ticks of an item were missed, the last of them at this time."""
    _note(cursor, identifier, schema=schema, tick=tick, kind="missed", number=number)


def note_by_hand(
    cursor: Any, identifier: str, job_id: int, *, by: str, schema: str, tick: datetime | None = None
) -> None:
    """Note that a person has run an item now, by adding this job.

    Its outcome is known if the job has the flags of ``crontab.recorded_runs.flags_of_run()``.
    """
    _note(cursor, identifier, schema=schema, job_id=job_id, kind="by_hand", run_by=by, tick=tick)


def _note(cursor: Any, identifier: str, *, schema: str, **values: Any) -> None:
    defaults = {"tick": None, "job_id": None, "number": 1, "run_by": ""}
    cursor.execute(statement(NOTE, schema), {**defaults, **values, "identifier": identifier})


def forget(cursor: Any, *, schema: str) -> None:
    """Delete the runs of items that are not known any more, or that have not run for longer than outcomes are kept."""
    cursor.execute(statement(FORGET, schema), {})
