"""The dashboard's memory: what workers have done, in four resolutions, each task's and all together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, NamedTuple

from django_graphile_worker.sql.schema import statement

# Half octaves from half a millisecond to more than an hour.
BUCKETS = 48
MINUTE, TEN_MINUTES, HOUR, DAY = 60, 600, 3600, 86400
# The identifier of rows that hold all tasks together: a chart of everything reads one row for each point.
ALL_TASKS = ""
# How long the finer resolutions are kept: as long as a chart looks back, and a little.
KEPT_SECONDS = {MINUTE: 2 * 3600, TEN_MINUTES: 26 * 3600}

RECORD = """/* gw:record-statistics */
insert into :SCHEMA._private_statistics as known (
    period_seconds, started_at, task_identifier, succeeded, failed, permanently_failed, interrupted,
    duration_seconds, wait_seconds, durations, waits)
select period_seconds, to_timestamp(started_at), task_identifier, succeeded, failed, permanently_failed, interrupted,
    duration_seconds, wait_seconds, durations::int[], waits::int[]
from unnest(
    %s::int[], %s::float8[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::float8[], %s::float8[], %s::text[], %s::text[]
) as counted (
    period_seconds, started_at, task_identifier, succeeded, failed, permanently_failed, interrupted,
    duration_seconds, wait_seconds, durations, waits)
order by period_seconds, started_at, task_identifier collate "C"
on conflict on constraint statistics_pkey do update set
    succeeded = known.succeeded + excluded.succeeded,
    failed = known.failed + excluded.failed,
    permanently_failed = known.permanently_failed + excluded.permanently_failed,
    interrupted = known.interrupted + excluded.interrupted,
    duration_seconds = known.duration_seconds + excluded.duration_seconds,
    wait_seconds = known.wait_seconds + excluded.wait_seconds,
    durations = array(
        select coalesce(each.a, 0) + coalesce(each.b, 0)
        from unnest(known.durations, excluded.durations) with ordinality as each(a, b, place) order by each.place),
    waits = array(
        select coalesce(each.a, 0) + coalesce(each.b, 0)
        from unnest(known.waits, excluded.waits) with ordinality as each(a, b, place) order by each.place)"""

PRUNE = """/* gw:prune-statistics */
delete from :SCHEMA._private_statistics
where (period_seconds = 60 and started_at < now() - least(%(older_than)s, %(minutes)s) * interval '1 second')
    or (period_seconds = 600 and started_at < now() - least(%(older_than)s, %(ten_minutes)s) * interval '1 second')
    or (period_seconds not in (60, 600) and started_at < now() - %(older_than)s * interval '1 second')"""

_COLUMNS = """extract(epoch from started_at)::bigint, task_identifier, succeeded, failed, permanently_failed,
    interrupted, duration_seconds, wait_seconds"""

READ = f"""/* gw:read-statistics */
select {_COLUMNS}, durations, waits
from :SCHEMA._private_statistics
where period_seconds = %(period)s and started_at >= %(since)s and task_identifier = %(task)s
order by started_at"""

READ_COUNTS = f"""/* gw:read-counts */
select {_COLUMNS}, '{{}}'::int[], '{{}}'::int[]
from :SCHEMA._private_statistics
where period_seconds = %(period)s and started_at >= %(since)s and task_identifier <> %(all)s
order by started_at desc
limit %(limit)s"""

READ_TASKS = f"""/* gw:read-tasks */
select {_COLUMNS}, durations, waits
from :SCHEMA._private_statistics
where period_seconds = %(period)s and started_at >= %(since)s and task_identifier <> %(all)s
order by started_at desc
limit %(limit)s"""


class Row(NamedTuple):
    """What became of one task's jobs in one stretch of time; `started_at` is in seconds since 1970."""

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


def record(cursor: Any, rows: Iterable[Row], *, schema: str) -> None:
    """Add the counts of some minutes to what is known; one statement."""
    counted = [(period, *row) for period, row in _in_all_resolutions(rows)]
    if counted:
        columns = [list(column) for column in zip(*counted, strict=True)]
        columns[-2:] = [[_array(histogram) for histogram in column] for column in columns[-2:]]
        cursor.execute(statement(RECORD, schema), columns)


def prune(cursor: Any, *, schema: str, older_than: float) -> int:
    """Forget what is older than so many seconds, and the finer resolutions before that; how many rows went."""
    kept = {"older_than": older_than, "minutes": KEPT_SECONDS[MINUTE], "ten_minutes": KEPT_SECONDS[TEN_MINUTES]}
    cursor.execute(statement(PRUNE, schema), kept)
    return max(int(cursor.rowcount), 0)


def read(cursor: Any, *, schema: str, period: int, since: datetime, task: str = ALL_TASKS) -> list[Row]:
    """The rows of one task, or of all together, since a time, oldest first."""
    cursor.execute(statement(READ, schema), {"period": period, "since": since, "task": task})
    return [Row._make(row) for row in cursor.fetchall()]


def read_tasks(
    cursor: Any, *, schema: str, period: int, since: datetime, histograms: bool, limit: int = 50_000
) -> list[Row]:
    """The rows of each task since a time; without histograms, which are most of a row, their counts alone."""
    parameters = {"period": period, "since": since, "all": ALL_TASKS, "limit": limit}
    cursor.execute(statement(READ_TASKS if histograms else READ_COUNTS, schema), parameters)
    return [Row._make(row) for row in cursor.fetchall()]


def together(rows: Sequence[Row], *, started_at: int, task_identifier: str) -> Row:
    """One row for several."""
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
    )


def _in_all_resolutions(rows: Iterable[Row]) -> list[tuple[int, Row]]:
    """Neighbouring minutes may share a longer stretch, and a statement may write each row once only."""
    groups: dict[tuple[int, int, str], list[Row]] = {}
    for row in rows:
        for period in (MINUTE, TEN_MINUTES, HOUR, DAY):
            started_at = row.started_at - row.started_at % period
            groups.setdefault((period, started_at, row.task_identifier), []).append(row)
            groups.setdefault((period, started_at, ALL_TASKS), []).append(row)
    return [
        (period, together(group, started_at=started_at, task_identifier=identifier))
        for (period, started_at, identifier), group in groups.items()
    ]


def _summed(histograms: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(*histograms, fillvalue=0))) if histograms else (0,) * BUCKETS


def _array(histogram: Sequence[int]) -> str:
    return "{" + ",".join(map(str, histogram)) + "}"
