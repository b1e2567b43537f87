"""Statistics for the dashboard: counts of ended runs in four resolutions, for each task and for all tasks together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, NamedTuple

from django_graphile_worker.sql.schema import statement

# The buckets of a histogram of durations: half octaves from half a millisecond to more than an hour.
BUCKETS = 48
MINUTE, TEN_MINUTES, HOUR, DAY = 60, 600, 3600, 86400
# The identifier of rows that count all tasks together: a chart of all tasks reads one row for each point.
ALL_TASKS = ""
# For how long the finer resolutions are kept: a little longer than the charts show.
KEPT_SECONDS = {MINUTE: 2 * 3600, TEN_MINUTES: 26 * 3600}

APPEND = """/* gw:append-statistics */
insert into :SCHEMA._private_statistics_pending (counted) values (%s::json)"""

FOLD = """/* gw:fold-statistics */
select :SCHEMA._private_fold_statistics_v1(%(seconds)s::float8 * interval '1 second', %(most)s::int)"""
# How many pending rows one statement adds to the statistics: it takes a fraction of a second.
MOST_FOLDED = 200

# The statement deletes one range of the primary key for each resolution: charts read the table at the same time.
PRUNE = """/* gw:prune-statistics */
delete from only :SCHEMA._private_statistics as known
using (values (60, %(minutes)s::float8), (600, %(ten_minutes)s), (3600, %(older_than)s), (86400, %(older_than)s))
    as kept (period_seconds, seconds)
where known.period_seconds = kept.period_seconds
    and known.started_at < pg_catalog.now() - least(kept.seconds, %(older_than)s) * interval '1 second'"""

_COLUMNS = """extract(epoch from started_at)::bigint, task_identifier, succeeded, failed, permanently_failed,
    interrupted, duration_seconds, wait_seconds"""

READ = f"""/* gw:read-statistics */
select {_COLUMNS}, durations, waits, expired
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and started_at >= %(since)s and task_identifier = %(task)s
order by started_at"""

BUSIEST = """/* gw:busiest-tasks */
select task_identifier
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and started_at >= %(since)s and task_identifier <> %(all)s
group by task_identifier
order by sum(succeeded + failed + permanently_failed) desc, task_identifier
limit %(limit)s"""

READ_TOTALS = """/* gw:read-totals */
select 0, task_identifier, pg_catalog.sum(succeeded)::bigint, pg_catalog.sum(failed)::bigint,
    pg_catalog.sum(permanently_failed)::bigint, pg_catalog.sum(interrupted)::bigint,
    pg_catalog.sum(duration_seconds), pg_catalog.sum(wait_seconds), '{}'::int[], '{}'::int[],
    pg_catalog.sum(expired)::bigint
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and started_at >= %(since)s and task_identifier <> %(all)s
group by task_identifier"""

# One look-up for each period of each task: the primary key has all tasks of a period side by side.
# One probe of the index for each task and period.
READ_RUNS = """/* gw:read-runs */
select task.identifier, pg_catalog.array_agg(extract(epoch from stretch.started_at)::bigint),
    pg_catalog.array_agg(known.succeeded + known.failed + known.permanently_failed),
    pg_catalog.sum(known.failed + known.permanently_failed)::bigint, pg_catalog.sum(known.expired)::bigint
from pg_catalog.unnest(%(tasks)s::text[]) as task (identifier)
cross join (
    select pg_catalog.to_timestamp(epoch) as started_at from pg_catalog.unnest(%(starts)s::bigint[]) as start (epoch)
) as stretch
cross join lateral (
    select succeeded, failed, permanently_failed, expired from :SCHEMA._private_statistics
    where period_seconds = %(period)s::int and started_at = stretch.started_at and task_identifier = task.identifier
    limit 1) as known
group by task.identifier"""

# The periods of all tasks, one after the other: faster than probes if most of the rows are those of the wanted tasks.
READ_RUNS_OF_MOST = """/* gw:read-runs */
select task_identifier, pg_catalog.array_agg(extract(epoch from started_at)::bigint),
    pg_catalog.array_agg(succeeded + failed + permanently_failed),
    pg_catalog.sum(failed + permanently_failed)::bigint, pg_catalog.sum(expired)::bigint
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and started_at >= pg_catalog.to_timestamp(%(first)s)
    and started_at <= pg_catalog.to_timestamp(%(last)s) and task_identifier = any (%(tasks)s::text[])
group by task_identifier"""
# How many times the rows of the wanted tasks may be read.
MOST_OTHERS = 3

READ_DURATIONS = """/* gw:read-durations */
select task_identifier, durations
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and started_at >= %(since)s and task_identifier = any (%(tasks)s::text[])"""


class Row(NamedTuple):
    """The counts of one task in one period; ``started_at`` is in seconds since 1970."""

    started_at: int
    task_identifier: str
    succeeded: int
    failed: int
    permanently_failed: int
    interrupted: int
    duration_seconds: float
    wait_seconds: float
    durations: Sequence[int]
    waits: Sequence[int]
    # Jobs that were not started in time; workers count them at once, and not for queues and workers.
    expired: int = 0


class TaskRuns(NamedTuple):
    """The number of runs of a task in each period, by the period's start; in all, its failed runs and expired jobs."""

    runs: Mapping[int, int]
    failures: int
    expired: int = 0


def append(cursor: Any, rows: Iterable[Row], *, schema: str) -> None:
    """Store the counts of some minutes for the next fold(): one new row, which no other session waits for."""
    cursor.execute(statement(APPEND, schema), [json.dumps([document(row) for row in rows], separators=(",", ":"))])


def fold(cursor: Any, *, schema: str, at_least_after: float = 0.0) -> bool:
    """Add the appended counts to the statistics, unless a worker did so less than ``at_least_after`` seconds ago.

    Return True if there may be more to add.
    """
    cursor.execute(statement(FOLD, schema), {"seconds": at_least_after, "most": MOST_FOLDED})
    return bool(cursor.fetchone()[0] >= MOST_FOLDED - 1)


def prune(cursor: Any, *, schema: str, older_than: float) -> int:
    """Delete rows older than ``older_than`` seconds, of finer resolutions sooner; return how many were deleted."""
    kept = {"older_than": older_than, "minutes": KEPT_SECONDS[MINUTE], "ten_minutes": KEPT_SECONDS[TEN_MINUTES]}
    cursor.execute(statement(PRUNE, schema), kept)
    return max(int(cursor.rowcount), 0)


def read(cursor: Any, *, schema: str, period: int, since: datetime, task: str = ALL_TASKS) -> list[Row]:
    """Return the rows of one task, or of all tasks together, since a time, the oldest first."""
    cursor.execute(statement(READ, schema), {"period": period, "since": since, "task": task})
    return [Row._make(row) for row in cursor.fetchall()]


def busiest_tasks(cursor: Any, *, schema: str, period: int, since: datetime, limit: int) -> list[str]:
    """Return the tasks with the most runs since a time, the busiest first."""
    parameters = {"period": period, "since": since, "all": ALL_TASKS, "limit": limit}
    cursor.execute(statement(BUSIEST, schema), parameters)
    return [name for (name,) in cursor.fetchall()]


def read_totals(cursor: Any, *, schema: str, period: int, since: datetime) -> list[Row]:
    """Return the counts of each task since a time, in one row for each task; without histograms."""
    cursor.execute(statement(READ_TOTALS, schema), {"period": period, "since": since, "all": ALL_TASKS})
    return [Row._make(row) for row in cursor.fetchall()]


def read_runs(
    cursor: Any, tasks: Sequence[str], *, schema: str, period: int, starts: Sequence[int], number_of_tasks: int
) -> dict[str, TaskRuns]:
    """Return how often each of these tasks ran in each of the periods that begin at ``starts``, one after the other.

    ``number_of_tasks`` is the number of all tasks that ran.
    """
    is_of_most = number_of_tasks <= MOST_OTHERS * len(tasks)
    bounds = {"first": starts[0], "last": starts[-1]} if is_of_most else {"starts": list(starts)}
    text = READ_RUNS_OF_MOST if is_of_most else READ_RUNS
    cursor.execute(statement(text, schema), {"tasks": list(tasks), "period": period, **bounds})
    return {
        name: TaskRuns(dict(zip(starts, runs, strict=True)), failures, expired)
        for name, starts, runs, failures, expired in cursor.fetchall()
    }


def read_durations(
    cursor: Any, tasks: Sequence[str], *, schema: str, period: int, since: datetime
) -> dict[str, Sequence[int]]:
    """Return the histogram of durations of each of these tasks since a time."""
    cursor.execute(statement(READ_DURATIONS, schema), {"tasks": list(tasks), "period": period, "since": since})
    found: dict[str, list[Sequence[int]]] = {}
    for name, durations in cursor.fetchall():
        found.setdefault(name, []).append(durations)
    return {name: _summed(histograms) for name, histograms in found.items()}


def together(rows: Sequence[Row], *, started_at: int, task_identifier: str) -> Row:
    """Return the sum of several rows."""
    return Row(
        started_at=started_at,
        task_identifier=task_identifier,
        succeeded=sum(row.succeeded for row in rows),
        failed=sum(row.failed for row in rows),
        permanently_failed=sum(row.permanently_failed for row in rows),
        interrupted=sum(row.interrupted for row in rows),
        duration_seconds=sum(row.duration_seconds for row in rows),
        wait_seconds=sum(row.wait_seconds for row in rows),
        durations=_summed([row.durations for row in rows]),
        waits=_summed([row.waits for row in rows]),
        expired=sum(row.expired for row in rows),
    )


def document(row: Row) -> dict[str, Any]:
    """Return the row for JSON, without the empty buckets of its histograms: most buckets are empty."""
    ran = [bucket for bucket, number in enumerate(row.durations) if number]
    waited = [bucket for bucket, number in enumerate(row.waits) if number]
    return {
        "minute": row.started_at,
        "task": row.task_identifier,
        "succeeded": row.succeeded,
        "failed": row.failed,
        "permanently_failed": row.permanently_failed,
        "interrupted": row.interrupted,
        "duration_seconds": row.duration_seconds,
        "wait_seconds": row.wait_seconds,
        "ran_in": ran,
        "ran": [row.durations[bucket] for bucket in ran],
        "waited_in": waited,
        "waited": [row.waits[bucket] for bucket in waited],
    }


def _summed(histograms: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(*histograms, fillvalue=0))) if histograms else (0,) * BUCKETS
