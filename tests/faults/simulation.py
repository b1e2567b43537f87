"""A seeded simulation: the worker's real parts and real SQL, on a clock and a network that the seed decides.

Each step of a part is one unit of work, so a whole fleet can be played on one thread. Statements are lost before
they are sent, lost after they are done, or done some time after their client gave up, after newer claims perhaps.
Leases run out by the simulation's own time, which also judges: whatever a worker does while the lease of another
holds that is in its way is a fault.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg

from django_graphile_worker import conf
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.fetching.claimer import Claimer
from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
from django_graphile_worker.worker.fetching.held_claims import HeldClaims
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
from django_graphile_worker.worker.maintenance.heartbeat import Heartbeat
from django_graphile_worker.worker.maintenance.recovery import Recovery
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Outcome, Succeeded
from django_graphile_worker.worker.release.releaser import Releaser
from django_graphile_worker.worker.release.statements import ReleaseStatements
from django_graphile_worker.worker.work_units import to_work_units
from tests.support.slot import make_task

TASK = "a_task"
BEAT, TIMEOUT = 10.0, 60.0
# Settings of a fleet in the middle of a change: seconds between beats, and of silence until a worker is dead.
PROMISES = [(BEAT, TIMEOUT), (3.0, 20.0), (30.0, 240.0)]
# How many jobs and queues, of which some are used by many.
JOBS, QUEUES = 14, 3
# The database's times are whole microseconds; a lease of exactly its length is over.
ROUNDING = 1e-3
# The parameters by which a statement is told the time of the jobs, and the database's own.
TIMES = ("now", "moment")
# The statements that begin a lease or make it longer.
BEATS = re.compile(r"/\* gw:(beat|register-worker) \*/")


class LostAnswerError(psycopg.OperationalError):
    """What the client sees when the connection breaks."""


class FaultyCursor:
    """Passes statements on with the simulation's time, unless the seed says otherwise."""

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
    """Stands in for the connection of a part."""

    alias = "default"

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.schema = simulation.schema

    @contextmanager
    def cursor(self) -> Iterator[FaultyCursor]:
        with self._simulation.connection.cursor() as cursor:
            yield FaultyCursor(self._simulation, cursor)

    def close(self) -> None:
        pass


@dataclass(eq=False)
class Running:
    """A job under way on a simulated worker."""

    claim: Claim


class SimulatedCallbacks:
    """What the parts of a simulated worker call; most of what they report is not looked at."""

    def __init__(self, worker: SimulatedWorker) -> None:
        self._worker = worker

    def worker_id(self) -> str:
        return self._worker.worker_id()

    def now(self) -> None:
        """The database's clock, which the simulation owns."""

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        self._worker.held.forget([outcome.claim for outcome in outcomes])

    def released(self, outcomes: Sequence[Outcome]) -> None: ...
    def claim_lost(self, outcome: Outcome) -> None: ...
    def retry_scheduled(self, seconds: float) -> None: ...
    def queues_freed(self, queue_ids: set[int]) -> None: ...
    def jobs_returned(self) -> None: ...

    def metadata(self) -> dict[str, Any]:
        return {}

    def proof_channel(self) -> None: ...

    def lease_lost(self) -> None:
        self._worker.lose_lease()

    def in_contact_since(self) -> float:
        return self._worker.heartbeat.in_contact_since

    def unrenewable_job_ids(self) -> list[int]:
        return []

    def before_recovery(self, database: Any) -> None: ...
    def jobs_recovered(self, recovered: Any) -> None: ...
    def stale_locks_released(self, unlocked: Any) -> None: ...
    def indexes_missed(self, missing: Sequence[str], incomplete: Sequence[str]) -> None: ...


class SimulatedRecovery(Recovery):
    """Recovery that leaves the indexes alone: they have no part in the simulation."""

    def _check_indexes(self) -> None: ...


class SimulatedWorker:
    """The parts of a worker, moved step by step."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation = simulation
        self.number = number
        self.generation = 0
        self.is_paused = False
        self.beat_interval, self.timeout = simulation.promise_of(number)
        self.next_beat = 0.0
        # A machine that sleeps takes its clock along; a process that is only stopped finds that time has passed.
        self.is_asleep = False
        self.seconds_asleep = 0.0
        self.waiting: list[tuple[HeldQueue | None, list[Claim]]] = []
        self.running: list[tuple[HeldQueue | None, list[Claim], Running]] = []
        settings = conf.Settings.from_mapping({"SCHEMA": simulation.schema})
        database = cast(Any, FaultyDatabase(simulation))
        directory = TaskDirectory(database, {TASK: make_task(print)})
        self.held = HeldClaims(
            database, worker_id=self.worker_id, statement_timeout=settings.statement_timeout, notify=False
        )
        self.claimer = Claimer(
            database,
            directory=directory,
            held=self.held,
            forbidden_flags=ForbiddenFlags(settings),
            now=lambda: None,
        )
        callbacks = SimulatedCallbacks(self)
        statements = ReleaseStatements(database, now=callbacks.now, notify=False)
        self.releaser = Releaser(statements=statements, events=callbacks)
        self.heartbeat = Heartbeat(
            database=database,
            events=callbacks,
            interval=self.beat_interval,
            timeout=self.timeout,
            clock=self.clock,
        )
        self.recovery = SimulatedRecovery(
            database=database,
            events=callbacks,
            timeout=self.timeout,
            heartbeat_interval=self.beat_interval,
            statistics_retention=1e6,
            notify=False,
            clock=self.clock,
        )

    def worker_id(self) -> str:
        return f"django-worker-{self.number}-{self.generation}"

    def clock(self) -> float:
        return self.simulation.seconds - self.seconds_asleep

    def start(self) -> None:
        self.heartbeat.register()

    def claim(self) -> None:
        """What the fetcher does, with the rules of the runner."""
        if not self.heartbeat.holds_lease or len(self.running) > 2:
            return
        chance = self.simulation.chance
        # A real worker looks for lost claims every second; simulated seconds pass faster.
        self.held._search_at = 0.0
        claimed = self.claimer.claim(max_jobs=chance.randint(1, 4), max_queues=2, max_per_queue=chance.randint(1, 3))
        for unit in to_work_units(claimed.claims):
            self.waiting.append((unit.queue, unit.claims))

    def begin(self) -> None:
        if self.waiting:
            queue, claims = self.waiting.pop(0)
            self._begin_or_return(queue, claims)

    def end(self) -> None:
        """One job ends, well or not; the next of its work unit begins."""
        if not self.running:
            return
        chance = self.simulation.chance
        queue, rest, running = self.running.pop(chance.randrange(len(self.running)))
        is_well = chance.random() < 0.8
        self.simulation.note_end(running, is_well=is_well)
        outcome: Outcome = (
            Succeeded(running.claim, 0.0) if is_well else Failed(running.claim, 0.0, "no luck", delay=1.0)
        )
        self.releaser.put(outcome)
        self._begin_or_return(queue, rest)

    def return_jobs(self) -> None:
        """What has not begun goes back: waiting work units whole, of running ones the rest."""
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
        """A worker that is not stopped beats as often as it promises; a beat that failed is tried again soon."""
        return not self.is_paused and self.clock() >= self.next_beat

    def sweep(self) -> None:
        self.recovery.step()

    def die(self) -> None:
        for _, _, running in self.running:
            self.simulation.note_end(running, is_well=None)
        self.running, self.waiting = [], []

    def _begin_or_return(self, queue: HeldQueue | None, claims: list[Claim]) -> None:
        """What the slot does: the next job of the work unit, or none of them when the lease is over."""
        if claims and self.heartbeat.holds_lease and claims[-1].worker_id == self.worker_id():
            self._begin(queue, claims)
            return
        for claim in reversed(claims):
            self.releaser.put(Interrupted(claim, 0.0))
        if queue is not None:
            self.releaser.put(queue)

    def _begin(self, queue: HeldQueue | None, claims: list[Claim]) -> None:
        # The next one is the last of the list.
        running = Running(claims.pop())
        self.simulation.note_start(running)
        self.running.append((queue, claims, running))

    def lose_lease(self) -> None:
        self.generation += 1
        self.return_jobs()


@dataclass
class Simulation:
    """A fleet, a database, a clock, and a seed that decides everything else."""

    connection: psycopg.Connection[Any]
    schema: str
    seed: int
    start: datetime = field(default_factory=lambda: datetime.now(UTC))
    seconds: float = 0.0
    late: list[tuple[Any, Any]] = field(default_factory=list)
    under_way: list[Running] = field(default_factory=list)
    ended_well: dict[int, Running] = field(default_factory=dict)
    # When the database took the last beat of each worker.
    beats: dict[str, float] = field(default_factory=dict)
    is_calm: bool = False
    # Machines that fall asleep: their clocks stop, and by them their leases hold.
    falls_asleep: bool = False
    # Workers whose settings differ.
    mixes_promises: bool = False
    # How far the database's clock has been set from the one by which everything else goes on.
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
        self._calm_down()

    def step(self) -> None:
        self._pass(self.chance.choice([0.0, 0.1, 1.0, 5.0]))
        if self.late and self.chance.random() < 0.3:
            self._do_late()
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
        worker.is_asleep = worker.is_paused and self.falls_asleep and self.chance.random() < 0.5
        self._pass(self.chance.choice([0.0, 30.0, 90.0]))

    def _pass(self, seconds: float) -> None:
        self.seconds += seconds
        for worker in self.workers:
            worker.seconds_asleep += seconds * worker.is_asleep

    def fate_of_statement(self) -> str:
        luck = 1.0 if self.is_calm else self.chance.random()
        return "lost before" if luck < 0.03 else "lost after" if luck < 0.06 else "late" if luck < 0.07 else "done"

    def execute(self, cursor: psycopg.Cursor[Any], text: Any, parameters: Any) -> None:
        """Run a statement now, by the time that it is now; and look at what it did to leases."""
        if isinstance(parameters, dict):
            parameters = parameters | {name: self.now for name in TIMES if name in parameters}
        cursor.execute(text, parameters)
        if BEATS.search(str(text)) and cursor.rowcount == 1:
            self.beats[parameters["worker_id"]] = self.seconds

    def promise_of(self, number: int) -> tuple[float, float]:
        """How often the worker with this number beats, and how long it may be silent."""
        return PROMISES[number % len(PROMISES)] if self.mixes_promises else PROMISES[0]

    def holds_lease(self, worker_id: str) -> bool:
        """Whether the database has heard of the worker lately: until then nobody may take its claims.

        When the database's clock is set, nobody can tell how long a worker has been silent before. All who beat
        as often as they promise keep their leases.
        """
        beat, timeout = self.promise_of(int(worker_id.split("-")[2]))
        return self.seconds - self.beats[worker_id] < (2 * beat if self.sets_clock else timeout) - ROUNDING

    def note_start(self, running: Running) -> None:
        """The invariants, at the moment at which they can break."""
        claim = running.claim
        for other in self.under_way:
            if self.holds_lease(other.claim.worker_id) and not self._may_be_unaware(running):
                assert other.claim.id != claim.id, f"seed {self.seed}: job {claim.id} runs twice at once"
                is_same_queue = claim.queue_id is not None and other.claim.queue_id == claim.queue_id
                assert not is_same_queue, f"seed {self.seed}: queue {claim.queue_id} runs twice at once"
        assert self._may_repeat(claim) or self._may_be_unaware(running), (
            f"seed {self.seed}: job {claim.id} was done already"
        )
        assert claim.attempts <= claim.max_attempts, f"seed {self.seed}: job {claim.id} has an attempt too many"
        self.under_way.append(running)

    def note_end(self, running: Running, *, is_well: bool | None) -> None:
        self.under_way.remove(running)
        if is_well:
            self.ended_well[running.claim.id] = running

    def check_register(self) -> None:
        """Nobody is taken out of the register before its lease is over."""
        registered = {row[0] for row in self.query("select id from {schema}._private_workers")}
        gone = self.beats.keys() - registered
        early = [worker_id for worker_id in gone if self.holds_lease(worker_id)]
        assert early == [], f"seed {self.seed}: {early} lost their leases early"
        for worker_id in gone:
            # For ever: a beat that arrives late finds no row.
            self.beats[worker_id] = -math.inf

    def query(self, text: str, *parameters: Any) -> list[Any]:
        cursor = self.connection.execute(text.replace("{schema}", f'"{self.schema}"').encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def _may_repeat(self, claim: Claim) -> bool:
        """At least once: a job that was done by a worker that then lost its lease or life is done again."""
        done = self.ended_well.get(claim.id)
        return done is None or not self.holds_lease(done.claim.worker_id)

    def _may_be_unaware(self, running: Running) -> bool:
        """A machine that slept past its lease does not know it before it asks: its jobs may begin once more."""
        worker_id = running.claim.worker_id
        return self.falls_asleep and not self.holds_lease(worker_id)

    def _actions(self, worker: SimulatedWorker) -> list[Callable[[], None]]:
        often = [worker.claim, worker.begin, worker.end, worker.release]
        return [*often, *often, worker.begin, worker.end, worker.beat, worker.sweep, worker.return_jobs]

    def _attempt(self, action: Callable[[], None]) -> None:
        with suppress(psycopg.OperationalError):
            action()
        self.check_register()

    def _do_late(self) -> None:
        text, parameters = self.late.pop(self.chance.randrange(len(self.late)))
        with self.connection.cursor() as cursor:
            self.execute(cursor, text, parameters)
        self.check_register()

    def _calm_down(self) -> None:
        """The last fault is over: everything must come to its end."""
        self.is_calm = True
        while self.late:
            self._do_late()
        # Jobs are due by the clock by which they were added: it has caught up.
        self.offset = max(self.offset, 0.0) + (1e6 if self.sets_clock else 0.0)
        for worker in self.workers:
            worker.is_paused = worker.is_asleep = False
        for _ in range(180):
            self.seconds += BEAT
            for worker in self.workers:
                worker.beat()
                worker.sweep()
                worker.claim()
                while worker.waiting or worker.running:
                    worker.begin()
                    worker.end()
                worker.release()
            if not self._left() and not self._held_queues():
                break
        assert self._left() == [], f"seed {self.seed}: jobs that nobody will ever run"
        self._check_the_end()

    def _left(self) -> list[Any]:
        """Jobs that are not over: neither gone nor permanently failed."""
        return self.query(
            "select id, attempts, locked_by from {schema}._private_jobs"
            " where attempts < max_attempts or locked_at is not null"
        )

    def _check_the_end(self) -> None:
        present = {row[0] for row in self.query("select id from {schema}._private_jobs")}
        lost = set(self.job_ids) - present - self.ended_well.keys()
        assert lost == set(), f"seed {self.seed}: jobs {lost} are gone and were never done"
        assert self._held_queues() == [], f"seed {self.seed}: queues that nobody will ever free"

    def _held_queues(self) -> list[Any]:
        """Also those of workers that have died a moment ago, with no job left in their hands."""
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
