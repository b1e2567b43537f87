"""Reads the state of the queue, and finds its problems, for the verb ``status``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_graphile_worker.crontab.times import format_time_phrase
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.management.operator import times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import capped, counted
from django_graphile_worker.management.operator.verb import Options
from django_graphile_worker.management.operator.worker_states import running_jobs, worker_state
from django_graphile_worker.sql import pauses
from django_graphile_worker.sql.inspection import overview
from django_graphile_worker.sql.inspection.job_search import counts
from django_graphile_worker.sql.inspection.job_search.counts import Count, OldestReady
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.sql.inspection.unpaused_jobs import oldest_unpaused
from django_graphile_worker.sql.inspection.unserved_tasks import UnservedTask, unserved_tasks
from django_graphile_worker.sql.install.installer import foreign_functions
from django_graphile_worker.sql.migrations_ledger import refuse_breaking_migration
from django_graphile_worker.sql.pauses import Pause
from django_graphile_worker.sql.statements import Cursor
from django_graphile_worker.sql.statistics import statistics
from django_graphile_worker.sql.statistics.statistics import ALL, MINUTE, TASK, Row
from django_graphile_worker.text import in_largest_unit

# Counting stops at this number: the exact number of more than ten thousand jobs makes no difference.
CAP = 10_000
# The throughput covers this many minutes. Workers write their statistics every few seconds.
RECENT = 5
# The NOTIFY queue is normally almost empty: if a larger share is full, some session does not read it.
FULL_NOTIFY_QUEUE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """The queue at one moment."""

    now: datetime
    counts: dict[State, Count]
    earliest: dict[State, datetime | None]
    # Of the jobs that are not paused.
    oldest_ready: OldestReady | None
    holders: Sequence[Holder]
    unserved: Sequence[UnservedTask]
    recent: Sequence[Row]
    # The problem of the schema, None if there is none.
    schema_problem: str | None
    # How full the server's queue of notifications is, from 0 to 1.
    notify_queue_usage: float = 0.0
    pauses: Sequence[Pause] = ()

    @property
    def waiting_seconds(self) -> float:
        """How long the oldest ready job that is not paused has been due."""
        if self.oldest_ready is None:
            return 0.0
        return max(0.0, (times.aware(self.now) - times.aware(self.oldest_ready.run_at)).total_seconds())

    def workers(self, *states: str) -> list[Holder]:
        return [holder for holder in self.holders if worker_state(holder) in states]

    @property
    def timeouts(self) -> list[float]:
        """The different timeouts of live workers, shortest first."""
        timeouts = (holder.timeout_seconds for holder in self.workers("alive", "stopping"))
        return sorted({seconds for seconds in timeouts if seconds is not None})

    @property
    def listeners(self) -> int:
        return sum(holder.metadata.get("is_listening") is True for holder in self.workers("alive", "stopping"))

    @property
    def running(self) -> int:
        return sum(len(running_jobs(holder)) for holder in self.workers("alive", "stopping"))

    @property
    def succeeded(self) -> int:
        """Runs that succeeded in the last minutes."""
        return sum(row.succeeded for row in self.recent)

    @property
    def failed(self) -> int:
        """Runs that failed in the last minutes, permanently or not."""
        return sum(row.failures for row in self.recent)

    @property
    def expired(self) -> int:
        """Jobs that expired in the last minutes."""
        return sum(row.expired for row in self.recent)


def read_status(console: Console, tasks: tuple[str, ...] = ()) -> QueueStatus:
    """Read the state of the queue, or only of the jobs of these tasks."""
    with console.reading() as (cursor, schema, now):
        oldest = counts.oldest_ready(cursor, schema=schema, tasks=tasks)
        paused = pauses.active(cursor, schema=schema)
        others = [state for state in STATES if state is not State.READY]
        since = times.aware(now) - timedelta(minutes=RECENT)
        return QueueStatus(
            now=now,
            counts=counts.count_states(cursor, Criteria(tasks=tasks), schema=schema, most=CAP),
            earliest={
                State.READY: oldest and oldest.run_at,
                **{state: counts.earliest(cursor, state, schema=schema, tasks=tasks) for state in others},
            },
            # A job that is paused does not wait for a worker.
            oldest_ready=oldest_unpaused(cursor, paused, schema=schema, tasks=tasks) if paused else oldest,
            holders=holders(cursor, schema=schema),
            unserved=[
                task
                for task in unserved_tasks(cursor, schema=schema, timeout=console.settings.worker_timeout)
                if not tasks or task.identifier in tasks
            ],
            recent=[
                row
                for kind, name in [(TASK, task) for task in tasks] or [(ALL, "")]
                for row in statistics.read(cursor, kind, name, schema=schema, period=MINUTE, since=since).rows
            ],
            schema_problem=_schema_problem(cursor, schema),
            notify_queue_usage=overview.notify_queue_usage(cursor),
            pauses=paused,
        )


def _schema_problem(cursor: Cursor, schema: str) -> str | None:
    try:
        refuse_breaking_migration(cursor, schema=schema)
    except BreakingMigrationError as error:
        return str(error)
    replaced = sorted({function.name for function in foreign_functions(cursor, schema=schema)})
    if replaced:
        names = ", ".join(replaced)
        return f"{names} of another program (manage.py graphile_worker repair restores the functions of this package)"
    return None


def find_problems(status: QueueStatus, options: Options) -> list[str]:
    """Return the problems of the queue, one phrase for each."""
    problems = [] if status.schema_problem is None else [f"the schema: {status.schema_problem.rstrip('.')}"]
    alive, wanted = len(status.workers("alive")), options["min_workers"]
    if alive < wanted:
        problems.append(f"{counted(alive, 'worker')} alive instead of {wanted}")
    if status.waiting_seconds > options["max_age"].total_seconds():
        problems.append(f"{_oldest(status)}, longer than {format_time_phrase(options['max_age'])}")
    failed, allowed_failures = status.counts[State.FAILED].number, options["max_failed"]
    if allowed_failures is not None and failed > allowed_failures:
        noun = "permanently failed job" if failed == 1 else "permanently failed jobs"
        problems.append(f"{capped(status.counts[State.FAILED])} {noun}, more than {allowed_failures}")
    holding = [holder for holder in status.workers("silent") if holder.jobs or holder.queues]
    if holding:
        holds = "holds" if len(holding) == 1 else "hold"
        problems.append(f"{counted(len(holding), 'silent worker')} {holds} jobs (sweep recovers them)")
    if status.notify_queue_usage > FULL_NOTIFY_QUEUE:
        share = f"{status.notify_queue_usage:.0%}"
        problems.append(f"the server's NOTIFY queue is {share} full (a session listens in a long transaction)")
    return problems


def _oldest(status: QueueStatus) -> str:
    job = status.oldest_ready
    assert job is not None
    why = " (no live worker has this task)" if job.task_identifier in {name for name, _ in status.unserved} else ""
    return f"{job.task_identifier} #{job.id} has been ready for {in_largest_unit(status.waiting_seconds)}{why}"
