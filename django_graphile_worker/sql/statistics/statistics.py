"""Counts of ended runs for the admin: of tasks, queues, workers and all jobs together, in four resolutions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, NamedTuple

from django_graphile_worker.sql.statements import statement

# The kinds of names that are counted. All jobs together have no name.
ALL, TASK, QUEUE, WORKER = "all", "task", "queue", "worker"
# The name of rows that count all queues or workers of a period that have no row of their own.
OTHERS = ""
# So many queues, and workers, have rows of their own in each period. Tasks are as many as the code has.
MOST_NAMES = 50

# What is counted, by its place in the array of counts. tables.sql has the same list, where the first place is 1. To
# count something else, take the next place here and there, and add a property to Row.
SUCCEEDED, FAILED, PERMANENTLY_FAILED, INTERRUPTED, EXPIRED, RUN_MICROSECONDS = range(6)
# The histograms. Their buckets are half octaves from half a millisecond to more than an hour.
DURATIONS, BUCKETS = 10, 48
WAITS = DURATIONS + BUCKETS
PLACES = WAITS + BUCKETS

MINUTE, TEN_MINUTES, HOUR, DAY = 60, 600, 3600, 86400
# For how long the finer resolutions are kept: a little longer than the charts show.
KEPT_SECONDS = {MINUTE: 2 * 3600, TEN_MINUTES: 26 * 3600}

APPEND = """/* gw:append-statistics */
insert into :SCHEMA._private_statistics_pending (counted) values (%s::json)"""

FOLD = """/* gw:fold-statistics */
select :SCHEMA._private_fold_statistics(
    %(seconds)s::float8 * interval '1 second', %(most)s::int, %(most_names)s::int)"""
# How many pending rows one statement adds to the statistics: it takes a fraction of a second.
MOST_FOLDED = 200

# One range of the primary key for each resolution and kind: charts read the table at the same time.
PRUNE = """/* gw:prune-statistics */
delete from only :SCHEMA._private_statistics as known
using (values (60, %(minutes)s::float8), (600, %(ten_minutes)s), (3600, %(older_than)s), (86400, %(older_than)s))
    as kept (period_seconds, seconds)
where known.period_seconds = kept.period_seconds and known.kind = any (array['all', 'queue', 'task', 'worker'])
    and known.started_at < pg_catalog.now() - least(kept.seconds, %(older_than)s) * interval '1 second'"""

READ = """/* gw:read-statistics */
select kind, name, extract(epoch from started_at)::bigint, counts
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and kind = %(kind)s::text and started_at >= %(since)s::timestamptz
    and name = any (%(names)s::text[])
order by started_at"""


def _count(place: int) -> str:
    return f"coalesce(counts[{place + 1}], 0)"


_FAILURES = f"{_count(FAILED)} + {_count(PERMANENTLY_FAILED)}"
_RUNS = f"{_count(SUCCEEDED)} + {_FAILURES}"

BUSIEST = f"""/* gw:busiest-names */
select kind, name
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and kind = any (array['queue', 'worker'])
    and started_at >= %(since)s::timestamptz and name <> %(others)s::text
group by kind, name
order by sum({_RUNS}) desc, name
limit %(limit)s::int"""

READ_TOTALS = f"""/* gw:read-totals */
select kind, name, 0, array[{", ".join(f"pg_catalog.sum({_count(place)})::bigint" for place in range(DURATIONS))}]
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and kind = 'task' and started_at >= %(since)s::timestamptz
group by kind, name"""

# One look-up for each period of each task: the primary key has all tasks of a period side by side.
READ_RUNS = f"""/* gw:read-runs */
select task.identifier, pg_catalog.array_agg(extract(epoch from stretch.started_at)::bigint),
    pg_catalog.array_agg(known.runs), pg_catalog.sum(known.failures)::bigint, pg_catalog.sum(known.expired)::bigint
from pg_catalog.unnest(%(tasks)s::text[]) as task (identifier)
cross join (
    select pg_catalog.to_timestamp(epoch) as started_at from pg_catalog.unnest(%(starts)s::bigint[]) as start (epoch)
) as stretch
cross join lateral (
    select {_RUNS} as runs, {_FAILURES} as failures, {_count(EXPIRED)} as expired from :SCHEMA._private_statistics
    where period_seconds = %(period)s::int and kind = 'task' and started_at = stretch.started_at
        and name = task.identifier
    limit 1) as known
group by task.identifier"""

# The periods of all tasks, one after the other: faster than probes if most of the rows are those of the wanted tasks.
READ_RUNS_OF_MOST = f"""/* gw:read-runs */
select name, pg_catalog.array_agg(extract(epoch from started_at)::bigint), pg_catalog.array_agg({_RUNS}),
    pg_catalog.sum({_FAILURES})::bigint, pg_catalog.sum({_count(EXPIRED)})::bigint
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and kind = 'task' and started_at >= pg_catalog.to_timestamp(%(first)s)
    and started_at <= pg_catalog.to_timestamp(%(last)s) and name = any (%(tasks)s::text[])
group by name"""
# How many times the rows of the wanted tasks may be read.
MOST_OTHERS = 3

READ_DURATIONS = f"""/* gw:read-durations */
select name, counts[{DURATIONS + 1}:{WAITS}]
from :SCHEMA._private_statistics
where period_seconds = %(period)s::int and kind = 'task' and started_at >= %(since)s::timestamptz
    and name = any (%(tasks)s::text[])"""


class Row(NamedTuple):
    """The counts of a name in one period; ``started_at`` is in seconds since 1970."""

    kind: str
    name: str
    started_at: int
    # The list may end early; what is missing is zero.
    counts: Sequence[int]

    @property
    def succeeded(self) -> int:
        return self._count(SUCCEEDED)

    @property
    def failed(self) -> int:
        """Runs of jobs with attempts left."""
        return self._count(FAILED)

    @property
    def permanently_failed(self) -> int:
        return self._count(PERMANENTLY_FAILED)

    @property
    def interrupted(self) -> int:
        return self._count(INTERRUPTED)

    @property
    def expired(self) -> int:
        """Jobs that were not started in time; not counted for queues and workers."""
        return self._count(EXPIRED)

    @property
    def failures(self) -> int:
        return self.failed + self.permanently_failed

    @property
    def runs(self) -> int:
        """Runs that ended and were not interrupted."""
        return self.succeeded + self.failures

    @property
    def run_seconds(self) -> float:
        return self._count(RUN_MICROSECONDS) / 1e6

    @property
    def durations(self) -> Sequence[int]:
        """The histogram of the time from start to end."""
        return self.counts[DURATIONS:WAITS]

    @property
    def waits(self) -> Sequence[int]:
        """The histogram of the time from due to start."""
        return self.counts[WAITS:PLACES]

    def _count(self, place: int) -> int:
        return self.counts[place] if place < len(self.counts) else 0


class NamedRows(NamedTuple):
    """The rows of one name, and the starts of periods in which it may be among the others."""

    rows: list[Row]
    unknown_starts: frozenset[int]


class TaskRuns(NamedTuple):
    """The number of runs of a task in each period, by the period's start; in all, its failed runs and expired jobs."""

    runs: Mapping[int, int]
    failures: int
    expired: int = 0


def append(cursor: Any, rows: Sequence[Row], *, worker_id: str, schema: str) -> None:
    """Store a worker's counts of tasks and queues for the next fold(): one new row, which no other session waits for.

    The counts of its tasks are also those of the worker, and of all jobs.
    """
    by_minute: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row.kind == TASK:
            by_minute[row.started_at].append(row)
    sums = [
        Row(kind, name, minute, summed(row.counts for row in each))
        for minute, each in by_minute.items()
        for kind, name in ((ALL, ""), (WORKER, worker_id))
    ]
    counted = json.dumps([_document(row) for row in (*rows, *sums)], separators=(",", ":"))
    cursor.execute(statement(APPEND, schema), [counted])


def fold(cursor: Any, *, schema: str, at_least_after: float = 0.0) -> bool:
    """Add the appended counts to the statistics, unless a worker did so less than ``at_least_after`` seconds ago.

    Return True if there may be more to add.
    """
    parameters = {"seconds": at_least_after, "most": MOST_FOLDED, "most_names": MOST_NAMES}
    cursor.execute(statement(FOLD, schema), parameters)
    return bool(cursor.fetchone()[0] >= MOST_FOLDED - 1)


def prune(cursor: Any, *, schema: str, older_than: float) -> int:
    """Delete rows older than ``older_than`` seconds, of finer resolutions sooner; return how many were deleted."""
    kept = {"older_than": older_than, "minutes": KEPT_SECONDS[MINUTE], "ten_minutes": KEPT_SECONDS[TEN_MINUTES]}
    cursor.execute(statement(PRUNE, schema), kept)
    return max(int(cursor.rowcount), 0)


def read(cursor: Any, kind: str, name: str, *, schema: str, period: int, since: datetime) -> NamedRows:
    """Return the rows of a task, a queue, a worker, or all jobs since a time, the oldest first."""
    parameters = {"kind": kind, "period": period, "since": since, "names": [name, OTHERS]}
    cursor.execute(statement(READ, schema), parameters)
    found = [Row._make(row) for row in cursor.fetchall()]
    rows = [row for row in found if row.name == name]
    with_others = {row.started_at for row in found if row.name != name}
    return NamedRows(rows, frozenset(with_others.difference(row.started_at for row in rows)))


def busiest_names(cursor: Any, *, schema: str, period: int, since: datetime) -> dict[str, Sequence[str]]:
    """Return the queues and workers with the most runs since a time, by kind."""
    parameters = {"period": period, "since": since, "others": OTHERS, "limit": 2 * MOST_NAMES}
    cursor.execute(statement(BUSIEST, schema), parameters)
    found = cursor.fetchall()
    return {kind: [name for each, name in found if each == kind] for kind in (QUEUE, WORKER)}


def read_totals(cursor: Any, *, schema: str, period: int, since: datetime) -> list[Row]:
    """Return the counts of each task since a time, in one row for each task; without histograms."""
    cursor.execute(statement(READ_TOTALS, schema), {"period": period, "since": since})
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
    found: defaultdict[str, list[Sequence[int]]] = defaultdict(list)
    for name, durations in cursor.fetchall():
        found[name].append(durations)
    return {name: summed(histograms) for name, histograms in found.items()}


def summed(arrays: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Return the sum of the numbers of each place."""
    return tuple(map(sum, zip_longest(*arrays, fillvalue=0)))


def _document(row: Row) -> dict[str, Any]:
    """Return the row for JSON, without the places whose number is zero: most buckets of the histograms are empty."""
    places = [place for place, number in enumerate(row.counts) if number]
    return {
        "kind": row.kind,
        "name": row.name,
        "minute": row.started_at,
        "places": [place + 1 for place in places],
        "numbers": [row.counts[place] for place in places],
    }
