"""Deliberate mistakes in the package ("mutants"). Each must make a test fail, which test_mutants.py names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.world import World

_IN_PROCESS: dict[str, Callable[[], None]] = {}
# A function of the schema, a part of its text, and the text that replaces this part.
_IN_DATABASE: dict[str, tuple[str, str, str]] = {
    "a completion does not check the token": (
        "_private_complete_claims",
        " and job.locked_by = holder\n",
        "\n",
    ),
    "queues are not exclusive": (
        "_private_lock_queues",
        " and queue.is_available",
        "",
    ),
    "returned jobs lose an attempt": (
        "_private_return_claims",
        "greatest(coalesce(returning_job.attempts_before, job.attempts) - 1, 0)",
        "coalesce(returning_job.attempts_before, job.attempts)",
    ),
    "recovery examines only the register of workers": (
        # A claim that commits after its worker was removed belongs to no registered worker.
        "_private_orphans",
        "where starts_with(holder.worker_id, 'django-worker-')",
        "where false",
    ),
    "recovered jobs go to the end of the queue": (
        "_private_recover_jobs",
        "when orphan.recoveries = 1 then job.run_at",
        "when false then job.run_at",
    ),
    "returns state the worker but not the claim": (
        "_private_lock_claims",
        "and each.locked_by = given.token",
        "and split_part(each.locked_by, '/', 1) = split_part(given.token, '/', 1)",
    ),
    "releases of queues state the worker but not the claim": (
        "_private_release_queues",
        "queue.locked_by = ended.holder",
        "split_part(queue.locked_by, '/', 1) = split_part(ended.holder, '/', 1)",
    ),
    "returns ignore that the job was removed or replaced": (
        "_private_return_claims",
        "on marker.job_id = job.id and marker.locked_by = job.locked_by",
        "on false",
    ),
    "recovery revives cancelled jobs": (
        "_private_end_cancelled_of",
        "where request.worker_id = any (dead_workers) or request.token = any (dead_workers)",
        "where false",
    ),
    "recovery releases a queue before its last job": (
        "_private_recover_queues",
        "and not exists (select from unfinished where unfinished.id = each.id)",
        "",
    ),
    "a pause leaves the lock of the job that runs": (
        "_private_lock_paused_queue",
        "set locked_by = token, locked_at = 'infinity'",
        "set locked_by = coalesce(queue.locked_by, token), locked_at = coalesce(queue.locked_at, 'infinity')",
    ),
    "the claim of a limited job is not counted": (
        "_private_count_chosen",
        "where job.is_counted and key.id = any (place_keys)",
        "where false",
    ),
    "a place of a limit is freed twice": (
        "_private_limit_rooms",
        "key.concurrency - case when",
        "key.concurrency + 1 - case when",
    ),
    "a rate forgets its starts": (
        "_private_count_chosen",
        "select started.key_id, number, moment",
        "select started.key_id, number, moment - interval '1 hour'",
    ),
    "a worker applies its own timeout to other workers": (
        "_private_late_workers",
        "coalesce(each.timeout_seconds, greatest(own_timeout, 300)) as",
        "own_timeout as",
    ),
}


def names() -> set[str]:
    return {*_IN_PROCESS, *_IN_DATABASE}


def apply(name: str, *, is_in_tests: bool = False) -> None:
    """Make a mistake in this process."""
    if name in _IN_PROCESS:
        _IN_PROCESS[name]()
    elif name and name not in _IN_DATABASE:
        raise ValueError(f"expected one of {sorted(names())}, got {name!r}")


def apply_to_database(name: str, world: World) -> None:
    """Make a mistake in the functions of the schema."""
    if name in _IN_DATABASE:
        _replace_in_function(world, name, *_IN_DATABASE[name])


def _replace_in_function(world: World, name: str, function: str, right: str, wrong: str) -> None:
    text = world.value(
        "select pg_get_functiondef(p.oid) from pg_proc as p where p.proname = %s and p.pronamespace = %s::regnamespace",
        function,
        f'"{world.schema}"',
    )
    # The text is already replaced if an earlier test of the same session did it.
    assert right in text or wrong in text, f"{function} no longer contains the text of the mutant {name!r}"
    if right in text:
        world.query(text.replace(right, wrong))


def mistake(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(function: Callable[[], None]) -> Callable[[], None]:
        _IN_PROCESS[name] = function
        return function

    return register


def _replace_sql(module: Any, constant: str, right: str, wrong: str) -> None:
    text = getattr(module, constant)
    assert right in text or wrong in text, f"{constant} no longer contains the text of the mutant"
    if wrong not in text:
        setattr(module, constant, text.replace(right, wrong))


@mistake("the heartbeat stops before the jobs have ended")
def _stop_heartbeat_first() -> None:
    from django_graphile_worker.worker.runner import Runner

    original = Runner.shutdown

    def shutdown(self: Runner, *arguments: Any, **options: Any) -> Any:
        self.worker.heartbeat.stop()
        return original(self, *arguments, **options)

    Runner.shutdown = shutdown  # type: ignore[method-assign]


@mistake("the releaser drops results when the connection breaks")
def _drop_results() -> None:
    import psycopg

    from django_graphile_worker.worker.release.batches import PendingReleases
    from django_graphile_worker.worker.release.releaser import Releaser

    original = Releaser._release

    def release(self: Releaser, pending: PendingReleases) -> None:
        try:
            original(self, pending)
        except psycopg.OperationalError:
            self._pending = PendingReleases()
            raise

    Releaser._release = release  # type: ignore[method-assign]


@mistake("the shutdown does not wait for results")
def _do_not_wait_for_results() -> None:
    from django_graphile_worker.worker.shutdown import Shutdown

    def no_wait(self: Shutdown, seconds: float = 0.0) -> bool:
        self._worker.releaser._inbox.clear()
        return True

    Shutdown._wait_for_releaser = no_wait  # type: ignore[method-assign]


@mistake("the listener does not check that notifications arrive")
def _trust_listen() -> None:
    from django_graphile_worker.worker.fetching.listener import Listener

    def prove(self: Listener) -> None:
        self._prove()

    Listener._insist_on_proof = prove  # type: ignore[method-assign]


@mistake("statements have no deadline")
def _no_deadline() -> None:
    from django_graphile_worker.worker.database.watchdog import Watchdog

    Watchdog.begin = lambda self, connection, seconds, **options: -1  # type: ignore[method-assign]


@mistake("lost claims are not searched for")
def _do_not_search_lost_claims() -> None:
    from django_graphile_worker.worker.fetching.claimer import HeldClaims

    HeldClaims.return_lost = lambda self: None  # type: ignore[method-assign]


@mistake("the signal handler raises")
def _raising_handler() -> None:
    from django_graphile_worker.worker.stop_request import WorkerStop

    def handle(self: WorkerStop, number: int, frame: Any) -> None:
        raise SystemExit(1)

    WorkerStop.handle_signal = handle  # type: ignore[method-assign]


@mistake("a job that kills its workers never loses an attempt")
def _no_poison_limit() -> None:
    from django_graphile_worker.sql import recovery

    recovery.POISON_LIMIT = 1000


@mistake("the release of a queue wakes no worker")
def _release_queues_without_notification() -> None:
    from django_graphile_worker.worker.database_worker import DatabaseWorker
    from django_graphile_worker.worker.release.statements import ReleaseStatements

    original = ReleaseStatements._waiting

    def waiting(self: ReleaseStatements, queue_ids: Any, sender: str | None) -> Any:
        return original(self, queue_ids, None)

    ReleaseStatements._waiting = waiting  # type: ignore[method-assign]
    DatabaseWorker.queues_freed = lambda self, queue_ids: None  # type: ignore[method-assign]


@mistake("queues that wait to be released do not count as pending work")
def _do_not_count_queues() -> None:
    from django_graphile_worker.worker.release.releaser import Releaser

    def pending_count(self: Releaser) -> int:
        return len(self._inbox) + len(self._pending.outcomes())

    Releaser.pending_count = property(pending_count)  # type: ignore[assignment]


@mistake("recovery declares workers dead right after an outage")
def _declare_dead_at_once() -> None:
    from django_graphile_worker.worker.maintenance.recovery import DeadWorkerDetector

    def find_dead(self: DeadWorkerDetector, late: Any, **contact: float) -> list[Any]:
        return [worker for worker in late if worker.is_silent]

    DeadWorkerDetector.find_dead = find_dead  # type: ignore[method-assign]


@mistake("the fetcher sleeps until the next poll")
def _sleep_until_the_next_poll() -> None:
    from django_graphile_worker.worker.fetching.fetcher import Fetcher

    original = Fetcher._delay_after

    def delay_after(self: Fetcher, claimed: Any) -> float:
        delay = original(self, claimed)
        return delay if delay == 0.0 else self._poll_interval

    Fetcher._delay_after = delay_after  # type: ignore[method-assign]


@mistake("connections to read-only servers are kept")
def _keep_read_only_connections() -> None:
    from django_graphile_worker.worker.database import connection as database

    database.WRONG_SERVER = ()  # type: ignore[assignment]


@mistake("processes outlive their supervisor")
def _let_children_outlive() -> None:
    from django_graphile_worker.worker.process import supervisor

    supervisor._heed_parent = lambda request, supervisor: None


@mistake("every process that dies early counts as a failed start")
def _count_every_death_as_failed_start() -> None:
    from django_graphile_worker.worker.process.supervisor import Child

    Child.has_begun = lambda self: False  # type: ignore[method-assign]


@mistake("connections are not checked before and after jobs")
def _do_not_check_connections() -> None:
    from django_graphile_worker.worker import django_connections

    django_connections.begin = lambda: None
    django_connections.end = lambda: ()


@mistake("jobs that still run at the end are not returned")
def _keep_interrupted_jobs() -> None:
    from django_graphile_worker.worker.pool.pool import Pool

    Pool.interrupt_running = lambda self, claims: []  # type: ignore[method-assign]


@mistake("coroutines are never cancelled")
def _do_not_cancel() -> None:
    from django_graphile_worker.worker.execution.event_loop import EventLoop

    EventLoop.cancel = lambda self: None  # type: ignore[method-assign]
    EventLoop.close = lambda self, seconds: None  # type: ignore[method-assign]


@mistake("running jobs are not informed of the stop")
def _do_not_set_abort() -> None:
    from django_graphile_worker.worker.execution.executor import Executor

    Executor.abort = lambda self: None  # type: ignore[method-assign]


@mistake("callables keep their broken connections")
def _keep_broken_connections() -> None:
    from django_graphile_worker.worker.fetching import claimable

    setattr(claimable, "close_old_connections", lambda: None)  # noqa: B010 - a name that the module only imports


@mistake("a claim that stopped early reports that there are no more jobs")
def _report_no_more_jobs() -> None:
    from dataclasses import replace

    from django_graphile_worker.sql import claims

    original = claims.claim_jobs

    def claim_jobs(*arguments: Any, **options: Any) -> claims.Claimed:
        return replace(original(*arguments, **options), has_more=False)

    claims.claim_jobs = claim_jobs


@mistake("jobs start after the lease has expired")
def _start_without_lease() -> None:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

    def may_begin(self: DatabaseWorker, claim: Any) -> bool:
        if self.run_stops.unbegun and self.run_stops.is_requested(claim):
            return False
        return not (self.pauses.hold_any and self.pauses.holds(claim))

    DatabaseWorker.may_begin = may_begin  # type: ignore[method-assign]


@mistake("a cancellation between claim and start is lost")
def _begin_cancelled_jobs() -> None:
    from django_graphile_worker.worker.control.run_stops import RunStops

    RunStops.is_requested = lambda self, claim: False  # type: ignore[method-assign]


@mistake("a pause is forgotten by the fast path")
def _claim_paused_jobs() -> None:
    from django_graphile_worker.sql.claims import FastClaimed, claim_few
    from django_graphile_worker.sql.codecs import int_array
    from django_graphile_worker.worker.fetching.claimer import FastPath

    def claim(self: FastPath, vacant: int) -> FastClaimed:
        worker = self._worker
        return claim_few(
            self._statement,
            token=worker.held.next_token(),
            task_ids=int_array(worker.directory.by_id).encode(),
            max_jobs=vacant,
            now=worker.now(),
        )

    FastPath.send = claim  # type: ignore[method-assign]


@mistake("leases do not age while the machine is suspended")
def _clock_that_stops() -> None:
    from django_graphile_worker.worker.maintenance import heartbeat

    heartbeat._BOOTTIME = None
