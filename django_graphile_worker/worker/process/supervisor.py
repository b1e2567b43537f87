"""The supervisor: a process that runs several worker processes, to use more than one processor core."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any

from django_graphile_worker.exceptions import BreakingMigrationError, GraphileWorkerError
from django_graphile_worker.text import readable_duration
from django_graphile_worker.worker.process import stack_dump
from django_graphile_worker.worker.process.child import DUMP_TIME, Child, ChildMain, send_signal
from django_graphile_worker.worker.process.health_file import interval
from django_graphile_worker.worker.process.signal_handlers import DUMP_SIGNAL
from django_graphile_worker.worker.process.worker_process import exit_code
from django_graphile_worker.worker.stop_request import StopState

logger = logging.getLogger("django_graphile_worker.worker")

# The supervisor gives up after this many deaths in a row of a child that had not begun to work, while no other child
# works: the child cannot start, and further attempts would only cost processor time. The death of a child that had
# begun to work does not count: a job may cause it, and other jobs wait.
FAILED_START_LIMIT = 5
CANNOT_START = 70
# At most this many retired processes may finish their jobs in their own time. The oldest of more is stopped.
MOST_RETIRED = 4


class Supervisor:
    """Spawns, watches, replaces and stops worker processes."""

    def __init__(
        self,
        processes: int,
        main: ChildMain,
        arguments: dict[str, Any],
        *,
        worker_timeout: float,
        replaces: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._main = main
        self._arguments = arguments
        self._replaces = replaces
        # A child that has not been healthy for so long is killed. Its lease is over, and others recover its jobs.
        self._worker_timeout = worker_timeout
        self._interval = interval(worker_timeout)
        self._clock = clock
        self._watched_at = clock()
        self._context = multiprocessing.get_context("spawn")
        self.children = [Child(place) for place in range(processes)]
        # Processes that run no more jobs than they have begun, the oldest first. Others have their places.
        self._retired: list[SpawnProcess] = []
        self._has_given_up = False
        # Signals to pass on to the children.
        self._to_pass_on: list[int] = []
        self._has_ever_worked = False
        # The error that keeps all children from working.
        self._problem = ""
        self._is_refused = False

    def run(self, request: StopState) -> int:
        """Keep the children running until a stop is requested; return the exit code.

        Raises the error that keeps all children from working.
        """
        for child in self.children:
            self._start(child)
        with self._passing_on(DUMP_SIGNAL):
            return self._run(request)

    @contextmanager
    def _passing_on(self, number: signal.Signals) -> Iterator[None]:
        """Pass on a signal that stops nothing to the children; only the main thread may handle signals."""
        if threading.current_thread() is not threading.main_thread() or not stack_dump.is_free(number):
            yield
            return
        # The handler only notes the signal: it may interrupt the loop while the loop reads a message of a child.
        before = signal.signal(number, lambda *_: self._to_pass_on.append(number))
        try:
            yield
        finally:
            signal.signal(number, before)

    def _run(self, request: StopState) -> int:
        while not request.is_made and not self._has_given_up and any(self._is_wanted(c) for c in self.children):
            self._watch(request)
        code = self._stop(request)
        if self._problem:
            raise (BreakingMigrationError if self._is_refused else GraphileWorkerError)(self._problem)
        return code

    def _is_wanted(self, child: Child) -> bool:
        # Until its death is noted, not only until it is dead: it may have sent the error that keeps it from working.
        return child.process is not None or self._replaces

    def _watch(self, request: StopState) -> None:
        """Wait for a death, a stop request, or the time to start a child again."""
        # A child that has just died still has a sentinel, which ends the wait at once.
        sentinels = [child.process.sentinel for child in self.children if child.process]
        messages = [child.has_started for child in self.children if child.process and child.has_started]
        retired = [process.sentinel for process in self._retired]
        wait([*sentinels, *messages, *retired, request.fileno()], self._timeout())
        request.drain()
        self._pass_on()
        self._forget_ended()
        self._kill_hung()
        for child in self.children:
            self._attend(child)

    def _timeout(self) -> float:
        """Return the seconds until a child has to be started, or the health of the children has to be checked."""
        waiting = [child.start_after for child in self.children if not child.process] if self._replaces else []
        return min([max(start_after - self._clock(), 0.0) for start_after in waiting], default=self._interval)

    def _kill_hung(self) -> None:
        """Kill the children that have not reported for the timeout that they are healthy.

        Either none of their threads can run, as while a job keeps the lock of the interpreter, or a part has died.
        """
        now = self._clock()
        # Time in which this process did not run itself does not count: its children may have been suspended with it.
        seconds, self._watched_at = min(now - self._watched_at, self._interval), now
        for child in self.children:
            child.note_seconds(seconds)
            if child.silent_seconds >= self._worker_timeout and child.is_alive and not child.is_hung:
                logger.warning(
                    "Worker process %s has not been healthy for %s: killing it.",
                    child.process.pid if child.process else None,
                    readable_duration(self._worker_timeout),
                )
                child.kill()

    def _attend(self, child: Child) -> None:
        if child.is_alive:
            if child.retires:
                self._retire(child)
            return
        if child.process is not None:
            self._note_death(child)
        if self._replaces and not self._has_given_up and self._clock() >= child.start_after:
            self._start(child)

    def _retire(self, child: Child) -> None:
        """Start another process in the place of a child that runs no more jobs than it has begun."""
        process = child.leave_place()
        logger.warning("Worker process %s has a job that does not stop; replacing it.", process.pid)
        self._retired.append(process)
        for oldest in self._retired[:-MOST_RETIRED]:
            oldest.terminate()
        if self._replaces:
            self._start(child)

    def _forget_ended(self) -> None:
        self._retired = [process for process in self._retired if process.is_alive()]

    def _note_death(self, child: Child) -> None:
        pid = child.process.pid if child.process is not None else None
        child.note_death(self._clock())
        is_any_working = any(other.is_working for other in self.children)
        self._has_ever_worked = self._has_ever_worked or is_any_working or child.has_begun()
        if child.problem and not self._has_ever_worked:
            # No child has begun to work, and the error applies to every child: raise it, as a single process does.
            self._problem = child.problem
            self._is_refused = child.exit_code == BreakingMigrationError.exit_code
            self._has_given_up = self._replaces
        elif child.exit_code == BreakingMigrationError.exit_code:
            # The schema is too new for every child; this child has logged it.
            self._is_refused = self._has_given_up = True
        elif self._replaces:
            self._has_given_up = child.failed_starts >= FAILED_START_LIMIT and not is_any_working
            self._log_death(pid, child)

    def _log_death(self, pid: int | None, child: Child) -> None:
        why = f" ({child.problem})" if child.problem else ""
        if self._has_given_up:
            logger.error(
                "Worker process %s ended with exit code %s%s; a process could not start %s times in a row: giving up.",
                pid,
                child.exit_code,
                why,
                FAILED_START_LIMIT,
            )
        else:
            logger.warning("Worker process %s ended with exit code %s%s; replacing it.", pid, child.exit_code, why)

    def _start(self, child: Child) -> None:
        child.start(self._context, self._main, self._arguments)
        child.started_at = self._clock()

    def _stop(self, request: StopState) -> int:
        number = request.signal_number or signal.SIGTERM
        self._signal_all(number)
        was_urgent = False
        while alive := [process.sentinel for process in self._processes() if process.is_alive()]:
            if request.is_urgent and not was_urgent:
                was_urgent = True
                # Not the same signal again: a busy child that has not handled the first would get the two as one.
                self._signal_all(signal.SIGQUIT)
            request.drain()
            self._pass_on()
            wait([*alive, request.fileno()], min(self._interval, 1.0))
            self._kill_hung()
        codes = [process.exitcode for process in self._processes()]
        if not self._replaces:
            codes += [child.exit_code for child in self.children if not child.process]
        if self._has_given_up:
            return BreakingMigrationError.exit_code if self._is_refused else CANNOT_START
        # A child that the signal ended before it could handle the signal had not begun anything.
        return exit_code(request, was_clean=all(code in (0, -number) for code in codes))

    def _processes(self) -> list[SpawnProcess]:
        return [*(child.process for child in self.children if child.process), *self._retired]

    def _signal_all(self, number: int) -> None:
        for process in self._processes():
            send_signal(process, number)

    def _pass_on(self) -> None:
        """Send the noted signals to one child after the other, because all children write to the same stream."""
        while self._to_pass_on:
            number = self._to_pass_on.pop(0)
            for child in self.children:
                if child.handles_signals:
                    child.signal(number)
                    # A child does not tell when it has written its stacks.
                    time.sleep(DUMP_TIME)
