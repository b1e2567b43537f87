"""A simulation from a seed: real parts of the worker and real SQL, with a simulated clock and network.

Each step of a part is one unit of work, so a thread can run a whole fleet. Statements are lost before they are sent,
lost after they were executed, or executed some time after their client gave up, perhaps after newer claims. Leases
expire by the time of the simulation, which also checks the invariants: while the lease of a worker holds, no other
worker may run its jobs.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from django_graphile_worker import conf
from django_graphile_worker.registry import Registry
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.sql.results import NOTHING_KEPT, ResultKeeping
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.maintenance.heartbeat import Heartbeat
from django_graphile_worker.worker.maintenance.recovery import Recovery
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Outcome, Succeeded
from django_graphile_worker.worker.pool.line import to_work_units
from tests.support.slot import make_task

TASK = "a_task"
BEAT, TIMEOUT = 10.0, 60.0
# Settings of a fleet whose settings are being changed: the heartbeat interval and the worker timeout, in seconds.
HEARTBEAT_SETTINGS = [(BEAT, TIMEOUT), (3.0, 20.0), (30.0, 240.0)]
# The number of jobs, and of queues, which several jobs share.
JOBS, QUEUES = 14, 3
# The database stores whole microseconds, and a lease that is exactly as old as its timeout has expired.
ROUNDING = 1e-3
# The parameters with the time for jobs and with the time of the database.
TIMES = ("now", "moment")
# The statements that begin or renew a lease.
BEATS = re.compile(r"/\* gw:(beat|register-worker) \*/")


class LostAnswerError(psycopg.OperationalError):
    """The error that the client gets when the connection breaks."""


class FaultyCursor:
    """A cursor that executes, delays or loses statements, as the seed decides, with the time of the simulation."""

    def __init__(self, simulation: Simulation, cursor: psycopg.Cursor[Any]) -> None:
        self._simulation = simulation
        self._cursor = cursor

    def execute(self, text: Any, parameters: Any = None) -> None:
        fate = self._simulation.fate_of_statement()
        if fate == "late":
            self._simulation.late.append((text, parameters))
        if fate in {"late", "lost before"}:
            raise LostAnswerError("the connection broke")
        self._simulation.execute(self._cursor, text, parameters)
        if fate == "lost after":
            raise LostAnswerError("the connection broke")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class FaultyDatabase:
    """The replacement for the connection of a part."""

    alias = "default"
    # Every statement goes through FaultyCursor.
    keeps_statements = False

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.schema = simulation.schema

    def connection(self) -> psycopg.Connection[Any]:
        return self._simulation.connection

    @contextmanager
    def cursor(self) -> Iterator[FaultyCursor]:
        with self._simulation.connection.cursor() as cursor:
            yield FaultyCursor(self._simulation, cursor)

    def close(self) -> None:
        pass


@dataclass(eq=False)
class Running:
    """A job that runs on a simulated worker."""

    claim: Claim


class SimulatedRecovery(Recovery):
    """Recovery without the check of the indexes, which the simulation does not need."""

    def _check_indexes(self) -> None: ...


class SimulatedParts(DatabaseWorker):
    """The parts of a worker, of which the simulation steps those that hold claims. What concerns others does nothing.

    ``FaultyCursor`` sets the time of each statement.
    """

    def __init__(self, owner: SimulatedWorker) -> None:
        self._owner = owner
        settings = conf.Settings.from_mapping(
            {
                "SCHEMA": owner.simulation.schema,
                "NOTIFY": False,
                "LISTEN": False,
                "HEARTBEAT_INTERVAL": owner.beat_interval,
                "WORKER_TIMEOUT": owner.timeout,
            }
        )
        super().__init__(
            Place(using="default", installation=conf.DEFAULT, settings=settings),
            tasks={TASK: make_task(print)},
            registry=Registry(),
            sender=SimulatedParts,
        )
        self.take_new_id()
        self.heartbeat = Heartbeat(self, clock=owner.clock)
        self.recovery = SimulatedRecovery(self, clock=owner.clock)

    def database(self, part: str, *, deadline: float | None = None) -> Any:
        return FaultyDatabase(self._owner.simulation)

    def result_keeping(self) -> ResultKeeping:
        return NOTHING_KEPT

    def metadata(self) -> dict[str, Any]:
        return {}

    def take_new_id(self) -> None:
        self.worker_id = f"django-worker-{self._owner.number}-{self._owner.generation}"

    def lease_lost(self) -> str:
        lost = self.worker_id
        self._owner.generation += 1
        self.take_new_id()
        self._owner.return_jobs()
        return lost

    def recovery_begins(self, database: Any) -> None: ...
    def registered(self, former_id: str | None) -> None: ...


class SimulatedWorker:
    """The parts of a worker, which the simulation steps."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation = simulation
        self.number = number
        self.generation = 0
        self.is_paused = False
        self.beat_interval, self.timeout = simulation.heartbeat_settings_of(number)
        self.next_beat = 0.0
        # The clock of a suspended machine stops; for a process that is only stopped, time passes.
        self.is_asleep = False
        self.seconds_asleep = 0.0
        self.waiting: list[tuple[HeldQueue | None, list[Claim]]] = []
        self.running: list[tuple[HeldQueue | None, list[Claim], Running]] = []
        self.parts = SimulatedParts(self)
        self.held, self.claimer, self.releaser = self.parts.held, self.parts.claimer, self.parts.releaser
        self.heartbeat, self.recovery = self.parts.heartbeat, self.parts.recovery

    @property
    def worker_id(self) -> str:
        return self.parts.worker_id

    def clock(self) -> float:
        return self.simulation.seconds - self.seconds_asleep

    def start(self) -> None:
        self.heartbeat.register()

    def claim(self) -> None:
        """Claim jobs as the fetcher does."""
        if not self.heartbeat.holds_lease or len(self.running) > 2:
            return
        chance = self.simulation.chance
        # A real worker searches for lost claims every second; simulated seconds pass faster.
        self.held._search_at = 0.0
        claimed = self.claimer.claim(max_jobs=chance.randint(1, 4), max_per_queue=chance.randint(1, 3))
        for unit in to_work_units(claimed.claims):
            self.waiting.append((unit.queue, unit.claims))

    def begin(self) -> None:
        if self.waiting:
            queue, claims = self.waiting.pop(0)
            self._begin_or_return(queue, claims)

    def end(self) -> None:
        """End a job, with any outcome, and start the next job of its work unit."""
        if not self.running:
            return
        chance = self.simulation.chance
        queue, rest, running = self.running.pop(chance.randrange(len(self.running)))
        is_well = chance.random() < 0.8
        self.simulation.record_end(running, is_well=is_well)
        outcome: Outcome = (
            Succeeded(running.claim, 0.0) if is_well else Failed(running.claim, 0.0, "no luck", delay=1.0)
        )
        self.releaser.put(outcome)
        self._begin_or_return(queue, rest)

    def return_jobs(self) -> None:
        """Return the jobs that have not started: waiting work units, and the rest of running work units."""
        returned = [Interrupted(claim, 0.0) for _, claims in self.waiting for claim in claims]
        queues = [queue for queue, _ in self.waiting if queue is not None]
        self.waiting = []
        for _, rest, _running in self.running:
            returned += [Interrupted(claim, 0.0) for claim in rest]
            rest.clear()
        if returned:
            self.releaser.return_jobs(returned, queues)

    def release(self) -> None:
        self.releaser.step()

    def beat(self) -> None:
        self.next_beat = self.clock() + self.beat_interval / 5
        self.heartbeat.step()
        self.next_beat = self.clock() + self.beat_interval

    @property
    def is_beat_due(self) -> bool:
        """Return whether a heartbeat is due: after the interval, or soon after a heartbeat that failed."""
        return not self.is_paused and self.clock() >= self.next_beat

    def recover(self) -> None:
        self.recovery.step()

    def die(self) -> None:
        for _, _, running in self.running:
            self.simulation.record_end(running, is_well=None)
        self.running, self.waiting = [], []

    def _begin_or_return(self, queue: HeldQueue | None, claims: list[Claim]) -> None:
        """Start the next job of the work unit as a slot does, or return the work unit if the lease has expired."""
        if claims and self.heartbeat.holds_lease and claims[-1].worker_id == self.worker_id:
            self._begin(queue, claims)
            return
        for claim in reversed(claims):
            self.releaser.put(Interrupted(claim, 0.0))
        if queue is not None:
            self.releaser.put(queue)

    def _begin(self, queue: HeldQueue | None, claims: list[Claim]) -> None:
        # The next job is the last of the list.
        running = Running(claims.pop())
        self.simulation.check_start(running)
        self.running.append((queue, claims, running))


@dataclass
class Simulation:
    """A fleet, a database, a clock, and a seed that decides what happens."""

    connection: psycopg.Connection[Any]
    schema: str
    seed: int
    start: datetime = field(default_factory=lambda: datetime.now(UTC))
    seconds: float = 0.0
    late: list[tuple[Any, Any]] = field(default_factory=list)
    running_jobs: list[Running] = field(default_factory=list)
    succeeded_jobs: dict[int, Running] = field(default_factory=dict)
    # When the database stored the last heartbeat of each worker.
    beats: dict[str, float] = field(default_factory=dict)
    is_calm: bool = False
    # Suspend machines: their clocks stop, so their leases still hold by their own clocks.
    suspends_machines: bool = False
    # Give the workers different settings.
    mixes_settings: bool = False
    # The difference between the clock of the database and the clock of the simulation.
    offset: float = 0.0
    sets_clock: bool = False

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.job_ids = self._add_jobs()
        self._numbers = iter(range(10_000))
        self.workers = [self._new_worker() for _ in range(3)]

    @property
    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds + self.offset)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self._finish_all_jobs()

    def step(self) -> None:
        self._pass(self.chance.choice([0.0, 0.1, 1.0, 5.0]))
        if self.late and self.chance.random() < 0.3:
            self._execute_late_statement()
        if self.sets_clock and self.chance.random() < 0.1:
            self.offset += self.chance.choice([-1, 1]) * self.chance.choice([20.0, 90.0, 3_600.0, 86_400.0])
        for each in self.workers:
            if each.is_beat_due:
                self._attempt(each.beat)
        place = self.chance.randrange(len(self.workers))
        worker = self.workers[place]
        action = self.chance.random()
        if action < 0.02:
            worker.die()
            self.workers[place] = self._new_worker()
        elif action < 0.05:
            self._pause_or_wake(worker)
        elif not worker.is_paused:
            self._attempt(self.chance.choice(self._actions(worker)))

    def _pause_or_wake(self, worker: SimulatedWorker) -> None:
        worker.is_paused = not worker.is_paused
        worker.is_asleep = worker.is_paused and self.suspends_machines and self.chance.random() < 0.5
        self._pass(self.chance.choice([0.0, 30.0, 90.0]))

    def _pass(self, seconds: float) -> None:
        self.seconds += seconds
        for worker in self.workers:
            worker.seconds_asleep += seconds * worker.is_asleep

    def fate_of_statement(self) -> str:
        luck = 1.0 if self.is_calm else self.chance.random()
        return "lost before" if luck < 0.03 else "lost after" if luck < 0.06 else "late" if luck < 0.07 else "done"

    def execute(self, cursor: psycopg.Cursor[Any], text: Any, parameters: Any) -> None:
        """Execute a statement with the current time of the simulation, and record renewed leases."""
        if isinstance(parameters, dict):
            parameters = parameters | {name: self.now for name in TIMES if name in parameters}
        cursor.execute(text, parameters)
        if BEATS.search(str(text)) and cursor.rowcount == 1:
            self.beats[parameters["worker_id"]] = self.seconds

    def heartbeat_settings_of(self, number: int) -> tuple[float, float]:
        """Return the heartbeat interval and the timeout of the worker with this number."""
        return HEARTBEAT_SETTINGS[number % len(HEARTBEAT_SETTINGS)] if self.mixes_settings else HEARTBEAT_SETTINGS[0]

    def holds_lease(self, worker_id: str) -> bool:
        """Return whether the lease of a worker holds, so that no other worker may recover its claims.

        If the clock of the database is set, no worker can know how long another was silent before. Then only workers
        that beat at their interval keep their leases.
        """
        beat, timeout = self.heartbeat_settings_of(int(worker_id.split("-")[2]))
        return self.seconds - self.beats[worker_id] < (2 * beat if self.sets_clock else timeout) - ROUNDING

    def check_start(self, running: Running) -> None:
        """Check the invariants when a job starts, which is when they can break."""
        claim = running.claim
        for other in self.running_jobs:
            if self.holds_lease(other.claim.worker_id) and not self._may_not_know_of_lost_lease(running):
                assert other.claim.id != claim.id, f"seed {self.seed}: job {claim.id} runs twice at once"
                is_same_queue = claim.queue_id is not None and other.claim.queue_id == claim.queue_id
                assert not is_same_queue, f"seed {self.seed}: queue {claim.queue_id} runs twice at once"
        assert self._may_repeat(claim) or self._may_not_know_of_lost_lease(running), (
            f"seed {self.seed}: job {claim.id} had already succeeded"
        )
        assert claim.attempts <= claim.max_attempts, f"seed {self.seed}: job {claim.id} has an attempt too many"
        self.running_jobs.append(running)

    def record_end(self, running: Running, *, is_well: bool | None) -> None:
        self.running_jobs.remove(running)
        if is_well:
            self.succeeded_jobs[running.claim.id] = running

    def check_registered_workers(self) -> None:
        """Check that no worker was removed before its lease expired."""
        registered = {row[0] for row in self.query("select id from {schema}._private_workers")}
        gone = self.beats.keys() - registered
        early = [worker_id for worker_id in gone if self.holds_lease(worker_id)]
        assert early == [], f"seed {self.seed}: {early} lost their leases early"
        for worker_id in gone:
            # The lease is lost for ever: a heartbeat that arrives late finds no row.
            self.beats[worker_id] = -math.inf

    def query(self, text: str, *parameters: Any) -> list[Any]:
        cursor = self.connection.execute(text.replace("{schema}", f'"{self.schema}"').encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def _may_repeat(self, claim: Claim) -> bool:
        """Return whether a job may run again: if it has not succeeded, or its worker then died or lost its lease."""
        done = self.succeeded_jobs.get(claim.id)
        return done is None or not self.holds_lease(done.claim.worker_id)

    def _may_not_know_of_lost_lease(self, running: Running) -> bool:
        """Return whether the machine was suspended past its lease: it cannot know that before its next statement."""
        worker_id = running.claim.worker_id
        return self.suspends_machines and not self.holds_lease(worker_id)

    def _actions(self, worker: SimulatedWorker) -> list[Callable[[], None]]:
        often = [worker.claim, worker.begin, worker.end, worker.release]
        return [*often, *often, worker.begin, worker.end, worker.beat, worker.recover, worker.return_jobs]

    def _attempt(self, action: Callable[[], None]) -> None:
        with suppress(psycopg.OperationalError):
            action()
        self.check_registered_workers()

    def _execute_late_statement(self) -> None:
        text, parameters = self.late.pop(self.chance.randrange(len(self.late)))
        with self.connection.cursor() as cursor:
            self.execute(cursor, text, parameters)
        self.check_registered_workers()

    def _finish_all_jobs(self) -> None:
        """Run without faults until all jobs have ended."""
        self.is_calm = True
        while self.late:
            self._execute_late_statement()
        # Jobs were added with the clock of the database: let the clock catch up.
        self.offset = max(self.offset, 0.0) + (1e6 if self.sets_clock else 0.0)
        for worker in self.workers:
            worker.is_paused = worker.is_asleep = False
        # A worker that sends heartbeats less often than it should declares no other worker dead.
        interval = min(worker.beat_interval for worker in self.workers)
        for _ in range(int(180 * BEAT / interval)):
            self.seconds += interval
            for worker in self.workers:
                worker.beat()
                worker.recover()
                worker.claim()
                while worker.waiting or worker.running:
                    worker.begin()
                    worker.end()
                worker.release()
            if not self._unfinished_jobs() and not self._held_queues():
                break
        assert self._unfinished_jobs() == [], f"seed {self.seed}: jobs that will never run"
        self._check_the_end()

    def _unfinished_jobs(self) -> list[Any]:
        """Return the jobs that are neither deleted nor permanently failed."""
        return self.query(
            "select id, attempts, locked_by from {schema}._private_jobs"
            " where attempts < max_attempts or locked_at is not null"
        )

    def _check_the_end(self) -> None:
        present = {row[0] for row in self.query("select id from {schema}._private_jobs")}
        lost = set(self.job_ids) - present - self.succeeded_jobs.keys()
        assert lost == set(), f"seed {self.seed}: jobs {lost} are gone and were never done"
        assert self._held_queues() == [], f"seed {self.seed}: queues that will never be released"

    def _held_queues(self) -> list[Any]:
        """Return all locked queues, also queues of workers that died without a claimed job."""
        return self.query("select id from {schema}._private_job_queues where locked_at is not null")

    def _new_worker(self) -> SimulatedWorker:
        worker = SimulatedWorker(self, next(self._numbers))
        calm, self.is_calm = self.is_calm, True
        worker.start()
        self.is_calm = calm
        return worker

    def _add_jobs(self) -> list[int]:
        for table in ("_private_jobs", "_private_job_queues", "_private_workers", "_private_job_recoveries"):
            self.query(f"delete from {{schema}}.{table}")
        return [self._add_job() for _ in range(JOBS)]

    def _add_job(self) -> int:
        queue_name = self.chance.choice([None, None, *[f"q{number}" for number in range(QUEUES)]])
        ((job_id,),) = self.query(
            "select id from {schema}.add_job(%s, queue_name := %s, max_attempts := %s, run_at := %s)",
            TASK,
            queue_name,
            self.chance.choice([1, 3, 25]),
            self.start - timedelta(seconds=self.chance.randint(0, 5)),
        )
        return int(job_id)
