"""The figures that charts and tiles show: counts of ended runs, and samples of the backlog.

Runs are counted for tasks, queues, workers and all jobs together, in four resolutions. A sample of the backlog has how
many jobs were in each state, once a minute, and how many ids were given out since. ``sql/ddl/tables.sql`` describes the
tables.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.statements import statement

# The kinds of names that are counted. All jobs together have no name.
ALL, TASK, QUEUE, WORKER = "all", "task", "queue", "worker"
# The name of rows that count all queues or workers of a period that have no row of their own.
OTHERS = ""
# So many queues, and workers, have rows of their own in each period. Tasks are as many as the code has.
MAX_NAMES = 50

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
MAX_FOLDED = 200

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
MAX_OTHERS = 3

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
    parameters = {"seconds": at_least_after, "most": MAX_FOLDED, "most_names": MAX_NAMES}
    cursor.execute(statement(FOLD, schema), parameters)
    return bool(cursor.fetchone()[0] >= MAX_FOLDED - 1)


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
    parameters = {"period": period, "since": since, "others": OTHERS, "limit": 2 * MAX_NAMES}
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
    is_of_most = number_of_tasks <= MAX_OTHERS * len(tasks)
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


# So many entries of an index are counted. What has more is estimated.
MAX_COUNTED = 100_000
# An estimate reads so many pages of the table at most; an estimate for a page of the admin reads fewer.
PAGES_OF_SAMPLE = 4_000
PAGES_OF_ESTIMATE = 1_000
# A task with more jobs than this in a state is listed in the latest sample.
MANY_JOBS = 200
# No chart shows more than a week.
SAMPLES_KEPT_SECONDS = 8 * 86400
# Between two samples that are further apart, the rate of added jobs is unknown.
MAX_GAP = 180

_THIS_MINUTE = "date_trunc('minute', coalesce(%(now)s::timestamptz, clock_timestamp()))"

IS_SAMPLED = f"""/* gw:is-backlog-sampled */
select exists (select from :SCHEMA._private_backlog_samples where minute = {_THIS_MINUTE})"""

SAMPLE = f"""/* gw:sample-backlog */
select :SCHEMA._private_sample_backlog(%(most)s::int, {PAGES_OF_SAMPLE}, {MANY_JOBS}, %(now)s::timestamptz)
where not exists (select from :SCHEMA._private_backlog_samples where minute = {_THIS_MINUTE})"""

PRUNE_SAMPLES = """/* gw:prune-backlog-samples */
delete from only :SCHEMA._private_backlog_samples
where minute < now() - %(older_than)s::float8 * interval '1 second'"""

# The highest sample of each period: the peak of an hour must not disappear between two samples that are shown.
READ_SAMPLES = f"""/* gw:read-backlog-samples */
select (pg_catalog.floor(pg_catalog.date_part('epoch', sample.minute) / %(period)s::float8)
        * %(period)s::float8)::bigint,
    pg_catalog.max(sample.ready), pg_catalog.max(sample.running), pg_catalog.max(sample.retrying),
    pg_catalog.bool_or(pg_catalog.cardinality(sample.estimated) > 0),
    pg_catalog.sum(sample.added)::float8 / nullif(pg_catalog.sum(sample.seconds), 0::float8)
from (
    select each.minute, each.ready, each.running, each.retrying, each.estimated,
        case when each.is_next then each.last_job_id - each.earlier_id end as added,
        case when each.is_next then each.seconds end as seconds
    from (
        select sample.*, pg_catalog.lag(sample.last_job_id) over (order by sample.minute) as earlier_id,
            pg_catalog.date_part(
                'epoch', sample.sampled_at - pg_catalog.lag(sample.sampled_at) over (order by sample.minute)
            ) as seconds,
            sample.last_job_id >= pg_catalog.lag(sample.last_job_id) over (order by sample.minute)
                and sample.sampled_at - pg_catalog.lag(sample.sampled_at) over (order by sample.minute)
                    between interval '1 second' and interval '{MAX_GAP} seconds' as is_next
        from :SCHEMA._private_backlog_samples as sample
        where sample.minute >= %(since)s::timestamptz - interval '{MAX_GAP} seconds') as each
    where each.minute >= %(since)s::timestamptz) as sample
group by 1
order by 1"""

LATEST_SAMPLE = f"""/* gw:latest-backlog-sample */
select {readable("sampled_at")}, ready, scheduled, running, retrying, permanently_failed, estimated, tasks::text
from :SCHEMA._private_backlog_samples
where minute > now() - %(newer_than)s::float8 * interval '1 second'
order by minute desc limit 1"""

ESTIMATE_BACKLOG = f"""/* gw:estimate-backlog */
with task as materialized (
    select each.task_id, coalesce(sum(number) filter (where state = 'ready'), 0)::bigint as ready,
        coalesce(sum(number) filter (where state = 'waiting'), 0)::bigint as waiting,
        coalesce(sum(number) filter (where state = 'retrying'), 0)::bigint as retrying,
        coalesce(sum(number) filter (where state = 'permanently_failed'), 0)::bigint as failed
    from :SCHEMA._private_estimate_backlog(
        {PAGES_OF_ESTIMATE}, array['ready', 'waiting', 'retrying', 'permanently_failed']) as each
    group by each.task_id
)
select now(), coalesce(sum(ready), 0)::bigint, greatest(coalesce(sum(waiting - retrying), 0), 0)::bigint, 0,
    coalesce(sum(retrying), 0)::bigint, coalesce(sum(failed), 0)::bigint,
    array['ready', 'scheduled', 'retrying', 'permanently_failed'], (
        select json_object_agg(known.identifier, json_build_array(many.ready, many.retrying, many.failed))::text
        from (
            select task.* from task where greatest(ready, retrying, failed) > {MANY_JOBS} order by ready desc limit 200
        ) as many
        join only :SCHEMA._private_tasks as known on known.id = many.task_id)
from task"""


class Sample(NamedTuple):
    """How many jobs were in each state at a time; ``estimated`` names the states whose number is an estimate."""

    sampled_at: datetime
    ready: int
    scheduled: int
    running: int
    retrying: int
    permanently_failed: int
    estimated: Sequence[str]
    tasks_text: str | None

    @property
    def tasks(self) -> Mapping[str, Sequence[int]]:
        """How many jobs of a task are ready, retrying and permanently failed, of tasks with many jobs."""
        return json.loads(self.tasks_text) if self.tasks_text else {}


class SamplesOfPeriod(NamedTuple):
    """The samples of a period: the highest numbers, and the jobs added per second."""

    started_at: int
    ready: int
    running: int
    retrying: int
    is_estimate: bool
    added_per_second: float | None


def is_sampled(cursor: Any, *, schema: str, now: datetime | None = None) -> bool:
    """Return True if a worker has taken a sample in this minute."""
    cursor.execute(statement(IS_SAMPLED, schema), {"now": now})
    return bool(cursor.fetchone()[0])


def sample_backlog(cursor: Any, *, schema: str, now: datetime | None = None, most: int = MAX_COUNTED) -> bool:
    """Count the jobs in each state, unless a worker has done so in this minute; return True if this call did.

    If there are more than ``most`` jobs, their number is an estimate.
    """
    cursor.execute(statement(SAMPLE, schema), {"now": now, "most": most})
    row = cursor.fetchone()
    return bool(row and row[0])


def prune_samples(cursor: Any, *, schema: str, older_than: float) -> int:
    """Delete samples older than ``older_than`` seconds, or than the charts show; return how many were deleted."""
    cursor.execute(statement(PRUNE_SAMPLES, schema), {"older_than": min(older_than, SAMPLES_KEPT_SECONDS)})
    return max(int(cursor.rowcount), 0)


def read_samples(cursor: Any, *, schema: str, period: int, since: datetime) -> list[SamplesOfPeriod]:
    """Return the samples since a time, in one row for each period that has any."""
    cursor.execute(statement(READ_SAMPLES, schema), {"period": period, "since": since})
    return [SamplesOfPeriod._make(row) for row in cursor.fetchall()]


def latest_sample(cursor: Any, *, schema: str, newer_than: float) -> Sample | None:
    """Return the last sample, unless it is older than this many seconds."""
    cursor.execute(statement(LATEST_SAMPLE, schema), {"newer_than": newer_than})
    row = cursor.fetchone()
    return None if row is None else Sample._make(row)


def estimate_backlog(cursor: Any, *, schema: str) -> Sample:
    """Estimate how many jobs are in each state, from some pages of the table; running jobs are left out."""
    cursor.execute(statement(ESTIMATE_BACKLOG, schema))
    return Sample._make(cursor.fetchone())
