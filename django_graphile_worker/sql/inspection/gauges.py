"""The gauges of the metrics: how many jobs wait, for how long, and who is there to run them.

One statement reads them all. It reads ranges of indexes, and of each range a limited number of jobs, so it costs about
the same with a thousand jobs and with ten million.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django_graphile_worker.sql.control import IS_ACTIVE_PAUSE
from django_graphile_worker.sql.inspection.job_list import AVAILABLE_OF_TASK
from django_graphile_worker.sql.inspection.lock_holders import MAX_LOCKS, MAX_WORKERS
from django_graphile_worker.sql.inspection.overview import MAX_TASKS, WAITING_QUEUES, in_each_level, levels
from django_graphile_worker.sql.jobs import IS_DUE, IS_LOCKED, IS_PERMANENTLY_FAILED, IS_RETRYING, IS_WAITING
from django_graphile_worker.sql.statements import statement
from django_graphile_worker.sql.statistics import DAY, FAILED, PERMANENTLY_FAILED, RUN_MICROSECONDS, SUCCEEDED
from django_graphile_worker.sql.workers import RUST_TIMEOUT

# How many jobs of each task and state are counted. Every worker may be scraped every few seconds.
MAX_COUNTED = 1_000
# How many queues with waiting jobs are counted. Fleets have fewer slots.
MAX_WAITING_QUEUES = 1_000
# A task that has no statistics takes as long as the average task; with no statistics at all, a second.
UNKNOWN_MEAN = 1.0
# So that work that waits is never zero.
SHORTEST_MEAN = 0.001
# A worker counts the jobs once a minute. An older count is not used.
OLDEST_SAMPLE = 180

_PLAIN, _QUEUED = AVAILABLE_OF_TASK
_COUNTS = (*(f"coalesce(counts[{place + 1}], 0)" for place in (SUCCEEDED, FAILED, PERMANENTLY_FAILED)),)


def _number(select: str) -> str:
    return f"(select count(*) from (select from ({select}) as each limit %(most)s::int) as job)"


def _first_of_each_level() -> str:
    return " union all ".join(f"({levels(condition)})" for condition in AVAILABLE_OF_TASK)


def _waiting() -> str:
    return " union all ".join(f"({in_each_level(condition, IS_WAITING)})" for condition in AVAILABLE_OF_TASK)


def _failed_once(condition: str) -> str:
    return f"""select from :SCHEMA._private_jobs as job where job.task_id = task.id and {condition}
        order by job.run_at, job.id limit %(most)s::int"""


GAUGES = f"""/* gw:gauges */
with recursive held as materialized (
    select job.task_id, :SCHEMA._private_worker_of(job.locked_by) as worker_id
    from :SCHEMA._private_jobs as job where {IS_LOCKED} order by job.locked_at limit {MAX_LOCKS}),
worker as materialized (
    select worker.id, case
        when worker.metadata ->> 'is_stopping' = 'true' then 0
        when worker.metadata ->> 'concurrency' ~ '^[0-9]{{1,6}}$' then (worker.metadata ->> 'concurrency')::int
        else 0 end as slots
    from :SCHEMA._private_workers as worker
    where worker.last_heartbeat_at > now() - interval '1 second'
        * coalesce(worker.timeout_seconds, greatest(%(timeout)s::float8, {RUST_TIMEOUT}::float8))
    order by worker.last_heartbeat_at desc limit {MAX_WORKERS}),
ended as materialized (
    select name, sum({" + ".join(_COUNTS)})::float8 as runs,
        sum(coalesce(counts[{RUN_MICROSECONDS + 1}], 0))::float8 / 1000000::float8 as seconds
    from :SCHEMA._private_statistics
    where period_seconds = {DAY} and kind = 'task' and started_at >= now() - interval '2 days' group by name),
pause as materialized (
    select pause.kind, pause.name from :SCHEMA._private_pauses as pause
    where {IS_ACTIVE_PAUSE.replace("%(now)s", "null")}),
{WAITING_QUEUES}
select (
    select json_agg(json_build_array(task.identifier, {_number(in_each_level(_PLAIN))},
        {_number(in_each_level(_QUEUED))}, {_number(_waiting())},
        (select count(*) from held where held.task_id = task.id),
        (select count(*) from ({_failed_once(IS_RETRYING)}) as job),
        (select count(*) from ({_failed_once(IS_PERMANENTLY_FAILED)}) as job),
        (select extract(epoch from now() - min(greatest(job.run_at, '0001-01-02')))::float8
            from ({_first_of_each_level()}) as job where {IS_DUE}),
        (select json_build_array(ended.runs, ended.seconds) from ended where ended.name = task.identifier),
        exists (select from pause where pause.kind = 'task' and pause.name = task.identifier)))::text
    from (select id, identifier from :SCHEMA._private_tasks order by id limit {MAX_TASKS}) as task
), (
    select count(*) from (select from waiting where id is not null limit {MAX_WAITING_QUEUES}) as queue
), (
    select json_build_array(count(*), coalesce(sum(worker.slots), 0), coalesce(sum(least(worker.slots, (
        select count(*) from held where held.worker_id = worker.id))), 0))::text
    from worker
), (
    select json_object_agg(each.kind, each.number)::text
    from (select pause.kind, count(*) as number from pause group by pause.kind) as each
), (
    select sample.tasks::text from :SCHEMA._private_backlog_samples as sample
    where sample.minute > now() - interval '{OLDEST_SAMPLE} seconds' order by sample.minute desc limit 1
)"""


class TaskGauges(NamedTuple):
    """The jobs of one task. Numbers end at ``MAX_COUNTED``, but ready, retrying and failed jobs are then estimated."""

    identifier: str
    # The ready jobs of named queues are a part of the ready jobs.
    ready: int
    ready_in_queues: int
    scheduled: int
    running: int
    retrying: int
    failed: int
    oldest_ready_seconds: float
    # The runs of two days, and how long they took together.
    runs: float
    run_seconds: float
    is_paused: bool


class Gauges(NamedTuple):
    """What the database shows at one moment."""

    tasks: Sequence[TaskGauges]
    # Named queues that have jobs.
    queues: int
    workers: int
    slots: int
    slots_in_use: int
    # How many queues, tasks and flags are paused, by kind.
    pauses: Mapping[str, int]

    @property
    def backlog_seconds(self) -> float:
        """How long a single slot would take for the ready jobs, as long as their tasks took lately.

        Jobs of paused tasks do not count. Jobs of one queue run one after the other: while there are fewer queues than
        slots, they keep only as many slots busy as there are queues, and count in that proportion.
        """
        runs = sum(task.runs for task in self.tasks)
        usual = sum(task.run_seconds for task in self.tasks) / runs if runs else UNKNOWN_MEAN
        share = min(1.0, self.queues / self.slots) if self.slots else 1.0
        return float(
            sum(
                (task.ready - task.ready_in_queues * (1.0 - share))
                * max(task.run_seconds / task.runs if task.runs else usual, SHORTEST_MEAN)
                for task in self.tasks
                if not task.is_paused
            )
        )

    @property
    def backlog_seconds_per_slot(self) -> float:
        """The same for all slots of the live workers; while none is alive, for one slot."""
        return self.backlog_seconds / max(self.slots, 1)


def read_gauges(cursor: Any, *, schema: str, timeout: float) -> Gauges:
    """Return the gauges of a queue. ``timeout`` is for workers that have registered none."""
    cursor.execute(statement(GAUGES, schema), {"most": MAX_COUNTED + 1, "timeout": timeout})
    tasks, queues, fleet, pauses, sample = cursor.fetchone()
    sampled = json.loads(sample) if sample else {}
    workers, slots, slots_in_use = json.loads(fleet)
    return Gauges(
        tasks=[_task(row, sampled.get(row[0])) for row in json.loads(tasks or "[]")],
        queues=queues,
        workers=workers,
        slots=slots,
        slots_in_use=slots_in_use,
        pauses=json.loads(pauses or "{}"),
    )


def _task(row: Sequence[Any], sampled: Sequence[int] | None) -> TaskGauges:
    identifier, plain, queued, waiting, running, retrying, failed, oldest, ended, is_paused = row
    of_sample = sampled or (0, 0, 0)
    ready = _whole(plain + queued, of_sample[0], is_capped=max(plain, queued) > MAX_COUNTED)
    return TaskGauges(
        identifier=identifier,
        ready=ready,
        ready_in_queues=round(ready * queued / (plain + queued)) if queued else 0,
        # A job that is tried again waits, too.
        scheduled=max(min(waiting, MAX_COUNTED) - retrying, 0),
        running=running,
        retrying=_whole(retrying, of_sample[1], is_capped=retrying > MAX_COUNTED),
        failed=_whole(failed, of_sample[2], is_capped=failed > MAX_COUNTED),
        oldest_ready_seconds=max(oldest or 0.0, 0.0),
        runs=ended[0] if ended else 0.0,
        run_seconds=ended[1] if ended else 0.0,
        is_paused=is_paused,
    )


def _whole(counted: int, sampled: int, *, is_capped: bool) -> int:
    """Return the number of jobs: of more than were counted, the number of the last sample if it is larger."""
    return max(counted - 1, sampled) if is_capped else counted
