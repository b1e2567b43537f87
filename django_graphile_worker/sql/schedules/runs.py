"""What became of the ticks of schedules, and of items of the crontab: their runs.

A run has a row, which the statement that fires writes. While the job of a run exists, its row says what becomes of it;
afterwards the row of its result does, for as long as the flag of the job says (``job_flags``). That row exists from the
beginning of the run: ``ddl/schedules.sql`` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from django_graphile_worker.job_flags import LONGEST_KEEP
from django_graphile_worker.sql.codecs import int_array, time_reader
from django_graphile_worker.sql.results import ResultStatus
from django_graphile_worker.sql.statements import statement


class RunOutcome(StrEnum):
    """What became of a run."""

    WAITING = "waiting"
    RUNNING = "running"
    # An attempt has failed, and there will be another.
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    # For good.
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    # The job was removed before it ended.
    REMOVED = "removed"
    # The job of a later run replaced it, because both have the same job key.
    REPLACED = "replaced"
    # There is neither a job nor a record: a worker ran it that records nothing, such as Node's, or it was long ago.
    UNKNOWN = "unknown"
    # There was no job, because the last run was not over,
    OVERLAP = "overlap"
    # because no worker ran,
    MISSED = "missed"
    # or because no worker knows the task.
    UNKNOWN_TASK = "unknown_task"

    @property
    def has_ended(self) -> bool:
        """Whether the run is over, and how it ended is known."""
        return self in _ENDED


_ENDED = frozenset(
    {RunOutcome.SUCCEEDED, RunOutcome.FAILED, RunOutcome.CANCELLED, RunOutcome.EXPIRED, RunOutcome.REMOVED}
)


class Run(NamedTuple):
    """What became of a tick, or of several that have one row, in the order of the columns."""

    id: int
    # One of the two is None.
    schedule_id: int | None
    crontab_identifier: str | None
    # The time that was due; for a run by hand, the time at which a person asked for it.
    tick: datetime
    # "on_time", "late", "by_hand", "overlap", "missed" or "unknown_task".
    kind: str
    # How many ticks the row stands for.
    number: int
    run_by: str
    added_at: datetime
    job_id: int | None
    outcome: RunOutcome
    # Of the last attempt, None if it is not known: the job waits, or its worker died.
    started_at: datetime | None
    ended_at: datetime | None
    # In seconds: of the last attempt, or since the start of the attempt that runs.
    duration: float | None
    # How many attempts have begun.
    attempts: int
    # The dotted path of the class of the exception that ended the last attempt.
    exception_class: str | None


_STATUS = " ".join(
    f"when {status.value} then '{outcome}'"
    for status, outcome in {
        ResultStatus.SUCCEEDED: RunOutcome.SUCCEEDED,
        ResultStatus.FAILED: RunOutcome.FAILED,
        ResultStatus.REMOVED: RunOutcome.REMOVED,
        ResultStatus.CANCELLED: RunOutcome.CANCELLED,
        ResultStatus.EXPIRED: RunOutcome.EXPIRED,
    }.items()
)
_OF_JOB = f"""case when job.locked_at is not null then '{RunOutcome.RUNNING}'
        when not job.is_available then '{RunOutcome.FAILED}'
        when job.attempts > 0 then '{RunOutcome.RETRYING}' else '{RunOutcome.WAITING}' end"""
# A job that waits, or is tried again, is replaced under its key in place, so both runs have its id.
_OUTCOME = f"""case when run.job_id is null then run.kind
        when run.is_replaced then '{RunOutcome.REPLACED}'
        when job.id is not null then {_OF_JOB}
        else case result.status {_STATUS} else '{RunOutcome.UNKNOWN}' end end"""
# The statuses of results whose last attempt is the one that ended the job.
_OF_ATTEMPTS = f"{ResultStatus.SUCCEEDED:d}, {ResultStatus.FAILED:d}, {ResultStatus.CANCELLED:d}"
_HAS_FAILED = "not job.is_available and job.locked_at is null"

# Times as numbers: on a connection of Django, a column of times takes longer to read than all others together.
_ROWS_OF_RUNS = f"""select run.id, run.schedule_id, run.crontab_identifier, date_part('epoch', run.tick), run.kind,
    run.number, run.run_by, date_part('epoch', run.added_at), run.job_id, run.outcome,
    date_part('epoch', run.started_at), date_part('epoch', run.ended_at),
    date_part('epoch', coalesce(run.ended_at, clock.now) - run.started_at),
    run.attempts, run.exception_class
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) as clock
cross join lateral (
    select known.*,
        case when known.outcome = '{RunOutcome.RUNNING}' then known.locked_at
            when known.is_recorded then to_timestamp((known.last_attempt ->> 'started_at')::float8) end as started_at,
        case when known.is_recorded then to_timestamp((known.last_attempt ->> 'ended_at')::float8) end as ended_at,
        case when known.is_recorded or known.outcome = '{RunOutcome.RETRYING}'
            then known.last_attempt ->> 'exception_class' end as exception_class
    from (
        select run.*, job.locked_at, {_OUTCOME} as outcome, not run.is_replaced and (job.id is null or {_HAS_FAILED})
                and result.status in ({_OF_ATTEMPTS}) as is_recorded,
            case when not run.is_replaced then result.attempts -> (-1) end as last_attempt,
            coalesce(
                case when run.is_replaced then 0 when {_HAS_FAILED} then null else job.attempts end,
                nullif(pg_catalog.jsonb_array_length(result.attempts), 0), job.attempts, 0) as attempts
        from (
            select run.*, run.job_id is not null
                and pg_catalog.lead(run.id) over (partition by run.source, run.job_id order by run.id) is not null
                as is_replaced
            from ({{rows}}) as run
        ) as run
        -- The limits ensure one probe of an index for each run. Without them, and with the statistics of an empty
        -- table, the planner reads the whole table of results.
        left join lateral (
            select * from only :SCHEMA._private_jobs as each where each.id = run.job_id limit 1) as job on true
        left join lateral (
            select * from only :SCHEMA._private_results as each where each.job_id = run.job_id limit 1
        ) as result on true
    ) as known
) as run
order by run.source, run.id desc"""


def _of_sources(column: str, sources: str) -> str:
    return _ROWS_OF_RUNS.format(
        rows=f"""select source.place as source, latest.*
                from unnest({sources}) with ordinality as source(value, place)
                cross join lateral (
                    select * from :SCHEMA._private_schedule_runs as each
                    where each.{column} = source.value order by each.id desc limit %(number)s::int
                ) as latest"""
    )


RUNS_OF_SCHEDULES = f"/* gw:schedule-runs */ {_of_sources('schedule_id', '%(ids)s::bigint[]')}"
RUNS_OF_CRONTABS = f"/* gw:crontab-runs */ {_of_sources('crontab_identifier', '%(identifiers)s::text[]')}"


def runs_of_schedules(
    cursor: Any, schedule_ids: Iterable[int], *, schema: str, number: int = 20, now: datetime | None = None
) -> dict[int, list[Run]]:
    """Return the last runs of each schedule, the latest first."""
    found: dict[int, list[Run]] = {schedule_id: [] for schedule_id in schedule_ids}
    parameters = {"ids": int_array(found), "number": number, "now": now}
    cursor.execute(statement(RUNS_OF_SCHEDULES, schema), parameters)
    for run in map(_run, cursor.fetchall()):
        found[run.schedule_id or 0].append(run)
    return found


def runs_of_crontabs(
    cursor: Any, identifiers: Iterable[str], *, schema: str, number: int = 20, now: datetime | None = None
) -> dict[str, list[Run]]:
    """Return the last runs of each item of the crontab, the latest first."""
    found: dict[str, list[Run]] = {identifier: [] for identifier in identifiers}
    parameters = {"identifiers": list(found), "number": number, "now": now}
    cursor.execute(statement(RUNS_OF_CRONTABS, schema), parameters)
    for run in map(_run, cursor.fetchall()):
        found[run.crontab_identifier or ""].append(run)
    return found


def _run(row: Sequence[Any]) -> Run:
    time = time_reader()
    # The times are numbers, and the outcome is text.
    run: Any = Run._make(row)
    read: Run = run._replace(
        tick=time(run.tick),
        added_at=time(run.added_at),
        outcome=RunOutcome(run.outcome),
        started_at=None if run.started_at is None else time(run.started_at),
        ended_at=None if run.ended_at is None else time(run.ended_at),
    )
    return read


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


def forget_runs(cursor: Any, *, schema: str) -> None:
    """Delete the runs of items that are not known any more, or that have not run for longer than outcomes are kept."""
    cursor.execute(statement(FORGET, schema), {})
