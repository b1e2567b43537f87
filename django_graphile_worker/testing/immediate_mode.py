"""Immediate mode: jobs run as soon as the transaction that added them has ended, in the process that added them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.db import DatabaseError, connections, transaction

from django_graphile_worker import simulation
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.routing import Place
from django_graphile_worker.testing import simulated_clock
from django_graphile_worker.testing.drain import MAX_JOBS, Drain
from django_graphile_worker.testing.in_process_worker import RanJob, running_job
from django_graphile_worker.testing.timelines import PresentTime, StandingTime, Timeline
from django_graphile_worker.text import shown
from django_graphile_worker.worker import django_connections

logger = logging.getLogger("django_graphile_worker.testing")


class _Thread(threading.local):
    """The places of this thread with jobs that have to run."""

    def __init__(self) -> None:
        self.waiting: list[Place] = []


_thread = _Thread()
# The lists of the open ``immediate()`` blocks, which what ran is added to.
_open_lists: list[list[RanJob]] = []


@contextmanager
def immediate() -> Iterator[list[RanJob]]:
    """Run jobs at the end of the outermost transaction that adds them; the result of ``as`` lists what ran.

    Inside a ``TestCase``, whose own transaction never ends, the outermost transaction is that of the code under test.
    """
    ran: list[RanJob] = []
    before, simulation.is_immediate = simulation.is_immediate, True
    _open_lists.append(ran)
    try:
        yield ran
    finally:
        _open_lists.remove(ran)
        simulation.is_immediate = before


def run_after_transaction(place: Place) -> None:
    """Run the due jobs of a place when the current transaction has ended; called after a job was added."""
    if running_job.get() is None and django_connections.this_thread.watched is not None:
        # A worker runs the job that added it, and will run it, too.
        return
    if place not in _thread.waiting:
        _thread.waiting.append(place)
    if running_job.get() is not None:
        # The loop below goes on when the job that runs has ended.
        return
    connection: Any = connections[place.using]
    depth = _depth_of_own_blocks(connection)
    if depth is None:
        _run_waiting()
    elif depth == 0:
        transaction.on_commit(_run_waiting, using=place.using)
    else:
        savepoint = connection.savepoint_ids[depth - 1]
        if savepoint is None:
            # A block without a savepoint inside a TestCase: nothing reports its end.
            _run_waiting()
        else:
            SavepointHooks.of(connection).add(savepoint, _run_waiting)


def _depth_of_own_blocks(connection: Any) -> int | None:
    """Return how many atomic blocks of a test are around those of the code under test; None if it has none."""
    if not connection.in_atomic_block:
        return None
    for depth, block in enumerate(connection.atomic_blocks):
        # Django marks the blocks of TestCase so, for atomic(durable=True).
        if not getattr(block, "_from_testcase", False):
            return depth
    return None


def _run_waiting() -> None:
    __tracebackhide__ = True
    while _thread.waiting:
        place = _thread.waiting.pop(0)
        clock = simulated_clock.current
        timeline: Timeline = PresentTime() if clock is None else StandingTime(clock)
        ran = ImmediateDrain(place, timeline, on_error="raise", limit=MAX_JOBS).run()
        for each in _open_lists:
            each += ran


class ImmediateDrain(Drain):
    """The jobs that are due at the end of a transaction, among them earlier jobs: retries, and scheduled jobs."""

    way_out = "Immediate mode raises it where the transaction ended that added the job. The job stays, and is retried."

    def _is_raised(self, ran: RanJob) -> bool:
        """Raise the error of a first attempt. Another transaction has added what is retried, and knows its error."""
        if ran.job.attempts == 1:
            return True
        logger.warning(
            "Immediate mode: attempt %s of %s of job %s, %s, has failed. The error is not raised, because an earlier "
            "transaction has added the job: %s",
            ran.job.attempts,
            ran.job.max_attempts,
            ran.job.id,
            shown(ran.task_identifier),
            shown(repr(ran.error)),
        )
        return False


class SavepointHooks:
    """Functions to call when savepoints of one connection are released, as ``on_commit()`` does for transactions."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._hooks: dict[str, Callable[[], None]] = {}

    @classmethod
    def of(cls, connection: Any) -> SavepointHooks:
        """Return the hooks of a connection, and install them first if needed."""
        installed = vars(connection).get("savepoint_commit")
        if isinstance(installed, partial):
            hooks: SavepointHooks = installed.args[0]
            return hooks
        hooks = cls(connection)
        vars(connection).update(
            savepoint_commit=partial(cls._commit, hooks), savepoint_rollback=partial(cls._rollback, hooks)
        )
        return hooks

    def add(self, savepoint: str, hook: Callable[[], None]) -> None:
        self._hooks[savepoint] = hook

    def _commit(self, savepoint: str) -> None:
        type(self._connection).savepoint_commit(self._connection, savepoint)
        hook = self._hooks.pop(savepoint, None)
        self._uninstall_if_empty()
        if hook is None:
            return
        try:
            hook()
        except DatabaseError as error:
            # Django would take it for an error of the savepoint.
            raise GraphileWorkerError(f"a job of immediate mode failed: {error!r}") from error

    def _rollback(self, savepoint: str) -> None:
        self._hooks.pop(savepoint, None)
        self._uninstall_if_empty()
        type(self._connection).savepoint_rollback(self._connection, savepoint)

    def _uninstall_if_empty(self) -> None:
        if not self._hooks:
            for name in ("savepoint_commit", "savepoint_rollback"):
                vars(self._connection).pop(name, None)
