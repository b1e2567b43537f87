"""Samples of the backlog: how many jobs were in each state, once a minute, and how many ids were given out since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.statements import statement

# So many entries of an index are counted. What has more is estimated.
MOST_COUNTED = 100_000
# An estimate reads about so many pages of the table; an estimate for a page of the admin reads fewer.
PAGES_OF_SAMPLE = 1_000
PAGES_OF_ESTIMATE = 500
# A task with more jobs than this in a state is listed in the latest sample. The admin counts fewer jobs itself.
MANY_JOBS = 200
# No chart shows more than a week.
KEPT_SECONDS = 8 * 86400
# Between two samples that are further apart, the rate of added jobs is unknown.
LONGEST_GAP = 180

_THIS_MINUTE = "date_trunc('minute', coalesce(%(now)s::timestamptz, clock_timestamp()))"

IS_SAMPLED = f"""/* gw:is-backlog-sampled */
select exists (select from :SCHEMA._private_backlog_samples where minute = {_THIS_MINUTE})"""

SAMPLE = f"""/* gw:sample-backlog */
select :SCHEMA._private_sample_backlog({MOST_COUNTED}, {PAGES_OF_SAMPLE}, {MANY_JOBS}, %(now)s::timestamptz)
where not exists (select from :SCHEMA._private_backlog_samples where minute = {_THIS_MINUTE})"""

PRUNE = """/* gw:prune-backlog-samples */
delete from only :SCHEMA._private_backlog_samples
where minute < now() - %(older_than)s::float8 * interval '1 second'"""

# The highest sample of each period: the peak of an hour must not disappear between two samples that are shown.
READ = f"""/* gw:read-backlog-samples */
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
                    between interval '1 second' and interval '{LONGEST_GAP} seconds' as is_next
        from :SCHEMA._private_backlog_samples as sample
        where sample.minute >= %(since)s::timestamptz - interval '{LONGEST_GAP} seconds') as each
    where each.minute >= %(since)s::timestamptz) as sample
group by 1
order by 1"""

LATEST = f"""/* gw:latest-backlog-sample */
select {readable("sampled_at")}, ready, scheduled, running, retrying, permanently_failed, estimated, tasks::text
from :SCHEMA._private_backlog_samples
where minute > now() - %(newer_than)s::float8 * interval '1 second'
order by minute desc limit 1"""

ESTIMATE = f"""/* gw:estimate-backlog */
with estimate as (
    select coalesce(sum(number) filter (where state = 'ready'), 0)::bigint as ready,
        coalesce(sum(number) filter (where state = 'waiting'), 0)::bigint as waiting,
        coalesce(sum(number) filter (where state = 'retrying'), 0)::bigint as retrying,
        coalesce(sum(number) filter (where state = 'permanently_failed'), 0)::bigint as permanently_failed
    from :SCHEMA._private_estimate_backlog(
        {PAGES_OF_ESTIMATE}, array['ready', 'waiting', 'retrying', 'permanently_failed']))
select now(), ready, greatest(waiting - retrying, 0), 0, retrying, permanently_failed,
    array['ready', 'scheduled', 'retrying', 'permanently_failed'], null
from estimate"""


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


def sample(cursor: Any, *, schema: str, now: datetime | None = None) -> bool:
    """Count the jobs in each state, unless a worker has done so in this minute; return True if this call did."""
    cursor.execute(statement(SAMPLE, schema), {"now": now})
    row = cursor.fetchone()
    return bool(row and row[0])


def prune(cursor: Any, *, schema: str, older_than: float) -> int:
    """Delete samples older than ``older_than`` seconds, or than the charts show; return how many were deleted."""
    cursor.execute(statement(PRUNE, schema), {"older_than": min(older_than, KEPT_SECONDS)})
    return max(int(cursor.rowcount), 0)


def read(cursor: Any, *, schema: str, period: int, since: datetime) -> list[SamplesOfPeriod]:
    """Return the samples since a time, in one row for each period that has any."""
    cursor.execute(statement(READ, schema), {"period": period, "since": since})
    return [SamplesOfPeriod._make(row) for row in cursor.fetchall()]


def latest(cursor: Any, *, schema: str, newer_than: float) -> Sample | None:
    """Return the last sample, unless it is older than this many seconds."""
    cursor.execute(statement(LATEST, schema), {"newer_than": newer_than})
    row = cursor.fetchone()
    return None if row is None else Sample._make(row)


def estimate(cursor: Any, *, schema: str) -> Sample:
    """Estimate how many jobs are in each state, from some pages of the table; running jobs are left out."""
    cursor.execute(statement(ESTIMATE, schema))
    return Sample._make(cursor.fetchone())
