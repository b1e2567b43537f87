"""The queue at one moment: what ``status`` shows, and judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.management.operator import times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verbs.workers import running_jobs, worker_state
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.cursor import Cursor
from django_graphile_worker.sql.inspection import counts, overview
from django_graphile_worker.sql.inspection.counts import Count, OldestReady
from django_graphile_worker.sql.inspection.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.sql.inspection.unserved_tasks import UnservedTask, unserved_tasks
from django_graphile_worker.sql.install.installer import foreign_functions
from django_graphile_worker.sql.ledger import refuse_breaking_migration
from django_graphile_worker.sql.statistics import MINUTE, Row

# Nobody acts differently on eleven thousand than on ten.
CAP = 10_000
# Minutes of which the throughput is told. Workers write theirs down every few seconds.
RECENT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The queue at one moment."""

    now: datetime
    counts: dict[State, Count]
    earliest: dict[State, datetime | None]
    oldest_ready: OldestReady | None
    holders: Sequence[Holder]
    unserved: Sequence[UnservedTask]
    recent: Sequence[Row]
    # What is wrong with the schema itself, None when nothing is.
    schema_problem: str | None
    # How full the server's queue of notifications is, from 0 to 1.
    notify_queue_usage: float = 0.0

    @property
    def waiting_seconds(self) -> float:
        """How long the oldest ready job has been due."""
        if self.oldest_ready is None:
            return 0.0
        return max(0.0, (times.aware(self.now) - times.aware(self.oldest_ready.run_at)).total_seconds())

    def workers(self, *states: str) -> list[Holder]:
        return [holder for holder in self.holders if worker_state(holder) in states]

    @property
    def timeouts(self) -> list[float]:
        """The different timeouts that live workers have promised, shortest first."""
        promised = (holder.timeout_seconds for holder in self.workers("alive", "stopping"))
        return sorted({seconds for seconds in promised if seconds is not None})

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
        """Runs that failed in the last minutes, for good or not."""
        return sum(row.failed + row.permanently_failed for row in self.recent)


def read_status(desk: Console, tasks: tuple[str, ...] = ()) -> Status:
    """Look at the queue, or at the jobs of these tasks in it."""
    with desk.reading() as (cursor, schema, now):
        oldest = counts.oldest_ready(cursor, schema=schema, tasks=tasks)
        others = [state for state in STATES if state is not State.READY]
        since = times.aware(now) - timedelta(minutes=RECENT)
        return Status(
            now=now,
            counts=counts.count_states(cursor, Criteria(tasks=tasks), schema=schema, most=CAP),
            earliest={
                State.READY: oldest and oldest.run_at,
                **{state: counts.earliest(cursor, state, schema=schema, tasks=tasks) for state in others},
            },
            oldest_ready=oldest,
            holders=holders(cursor, schema=schema),
            unserved=[
                task
                for task in unserved_tasks(cursor, schema=schema, timeout=desk.settings.worker_timeout)
                if not tasks or task.identifier in tasks
            ],
            recent=[
                row
                for task in tasks or (statistics.ALL_TASKS,)
                for row in statistics.read(cursor, schema=schema, period=MINUTE, since=since, task=task)
            ],
            schema_problem=_schema_problem(cursor, schema),
            notify_queue_usage=overview.notify_queue_usage(cursor),
        )


def _schema_problem(cursor: Cursor, schema: str) -> str | None:
    try:
        refuse_breaking_migration(cursor, schema=schema)
    except BreakingMigrationError as error:
        return str(error)
    replaced = sorted({function.name for function in foreign_functions(cursor, schema=schema)})
    if replaced:
        return f"{', '.join(replaced)} of another program (manage.py graphile_worker repair puts ours back)"
    return None
