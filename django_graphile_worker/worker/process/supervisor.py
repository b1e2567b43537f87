"""Several worker processes under one: for more than one core."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import django

from django_graphile_worker.exceptions import BreakingMigrationError, GraphileWorkerError
from django_graphile_worker.worker.process.exit import end_in_time, leave
from django_graphile_worker.worker.process.process import exit_code
from django_graphile_worker.worker.process.signal_handlers import DUMP_SIGNAL, handled_signals
from django_graphile_worker.worker.stop_request import StopState

logger = logging.getLogger("django_graphile_worker.worker")

# A child that lived this long had a reason to die that may not come again.
QUICK_DEATH = 5.0
# So many deaths in a row before it had begun to work, and nobody else works: it cannot
# start, and trying on would only burn the machine. One that worked and was killed is
# another matter: jobs may do that, and others wait.
FAILED_START_LIMIT = 5
LONGEST_BACKOFF = 10.0
CANNOT_START = 70
# How long a child has to write its stacks before the next one begins.
TURN = 0.1
# What a child says when it has begun to work; anything else is what keeps it from that.
STARTED = "started"

ChildMain = Callable[[StopState, dict[str, Any]], int]


class Child:
    """One worker process and its history."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.process: SpawnProcess | None = None
        self.started_at = 0.0
        self.quick_deaths = 0
        # How often in a row it died before it had begun to work.
        self.failed_starts = 0
        self.start_after = 0.0
        self.has_started: Connection | None = None
        self._has_begun = False
        # What it said that keeps it from working.
        self.problem = ""
        # Of the last process, once it is buried.
        self.exit_code: int | None = None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    @property
    def is_working(self) -> bool:
        return self.is_alive and self.has_begun()

    def has_begun(self) -> bool:
        """Has this process, or the last one if it is dead, begun to work?"""
        with contextlib.suppress(EOFError, OSError):
            while self.has_started is not None and self.has_started.poll():
                message = self.has_started.recv()
                if message == STARTED:
                    self._has_begun = True
                else:
                    self.problem = str(message)
        return self._has_begun

    def forget(self) -> None:
        """A new process begins."""
        self._has_begun, self.problem = False, ""

    def note_death(self, now: float) -> None:
        had_started = self.has_begun()
        if self.has_started is not None:
            self.has_started.close()
            self.has_started = None
        was_quick = now - self.started_at < QUICK_DEATH or not had_started
        self.quick_deaths = self.quick_deaths + 1 if was_quick else 0
        self.failed_starts = 0 if had_started else self.failed_starts + 1
        delay = min(LONGEST_BACKOFF, 0.1 * 2 ** min(self.quick_deaths, 10)) if self.quick_deaths else 0.0
        self.start_after = now + delay


class Supervisor:
    """Spawns, watches, replaces and stops worker processes."""

    def __init__(
        self,
        processes: int,
        main: ChildMain,
        arguments: dict[str, Any],
        *,
        replaces: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._main = main
        self._arguments = arguments
        self._replaces = replaces
        self._clock = clock
        self._context = multiprocessing.get_context("spawn")
        self.children = [Child(place) for place in range(processes)]
        self._has_given_up = False
        # Signals that the children are to be given, too.
        self._to_pass_on: list[int] = []
        self._has_ever_worked = False
        # What keeps all of them from working.
        self._problem = ""
        self._is_refused = False

    def run(self, request: StopState) -> int:
        """Keep the children going until asked to stop; the exit code. Raises what keeps them from working at all."""
        for child in self.children:
            self._start(child)
        with self._passing_on(DUMP_SIGNAL):
            return self._run(request)

    @contextmanager
    def _passing_on(self, number: signal.Signals) -> Iterator[None]:
        """Give a signal that stops nothing to the children, too; only the main thread may."""
        if threading.current_thread() is not threading.main_thread() or signal.getsignal(number) != signal.SIG_DFL:
            yield
            return
        # The handler only takes a note: it may have interrupted the loop while that reads what a child says.
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
        # Until it is buried, not just dead: it may have said what keeps it from working.
        return child.process is not None or self._replaces

    def _watch(self, request: StopState) -> None:
        """Wait for a death, a stop request, or the time to start a child again."""
        # One that died a moment ago has a sentinel, too, which does not let us wait.
        sentinels = [child.process.sentinel for child in self.children if child.process]
        waiting = [child for child in self.children if not child.process]
        soonest = min((child.start_after for child in waiting), default=None)
        timeout = None if soonest is None or not self._replaces else max(soonest - self._clock(), 0.0)
        wait([*sentinels, request.fileno()], timeout)
        request.drain()
        self._pass_on()
        for child in self.children:
            self._attend(child)

    def _attend(self, child: Child) -> None:
        if child.is_alive:
            return
        if child.process is not None:
            self._bury(child)
        if self._replaces and not self._has_given_up and self._clock() >= child.start_after:
            self._start(child)

    def _bury(self, child: Child) -> None:
        process, child.process = child.process, None
        child.exit_code = process.exitcode if process is not None else None
        child.note_death(self._clock())
        is_anyone_working = any(other.is_working for other in self.children)
        self._has_ever_worked = self._has_ever_worked or is_anyone_working or child.has_begun()
        if child.problem and not self._has_ever_worked:
            # What it says is true for all of them, and was so before anything began: as it would be for one alone.
            self._problem = child.problem
            self._is_refused = child.exit_code == BreakingMigrationError.exit_code
            self._has_given_up = self._replaces
        elif child.exit_code == BreakingMigrationError.exit_code:
            # The schema is too new for all of them; the child has said so in its log.
            self._is_refused = self._has_given_up = True
        elif process is not None and self._replaces:
            self._has_given_up = child.failed_starts >= FAILED_START_LIMIT and not is_anyone_working
            self._tell_death(process, child.problem)

    def _tell_death(self, process: SpawnProcess, problem: str) -> None:
        why = f" ({problem})" if problem else ""
        if self._has_given_up:
            logger.error(
                "Worker process %s ended with exit code %s%s; one could not start %s times in a row: giving up.",
                process.pid,
                process.exitcode,
                why,
                FAILED_START_LIMIT,
            )
        else:
            logger.warning(
                "Worker process %s ended with exit code %s%s; replacing it.", process.pid, process.exitcode, why
            )

    def _start(self, child: Child) -> None:
        child.forget()
        child.has_started, tells_start = self._context.Pipe(duplex=False)
        child.process = self._context.Process(
            target=_child_main,
            args=(self._main, self._arguments | {"place": child.place}, tells_start),
            name=f"graphile-worker-{child.place}",
        )
        child.process.start()
        tells_start.close()
        child.started_at = self._clock()

    def _stop(self, request: StopState) -> int:
        number = request.signal_number or signal.SIGTERM
        self._signal_all(number)
        was_urgent = False
        while alive := [child.process.sentinel for child in self.children if child.process and child.is_alive]:
            if request.is_urgent and not was_urgent:
                was_urgent = True
                self._signal_all(number)
            request.drain()
            self._pass_on()
            wait([*alive, request.fileno()], 1.0)
        codes = [child.process.exitcode for child in self.children if child.process]
        if not self._replaces:
            codes += [child.exit_code for child in self.children if not child.process]
        if self._has_given_up:
            return BreakingMigrationError.exit_code if self._is_refused else CANNOT_START
        # A child that the signal met before it could listen had not begun anything.
        return exit_code(request, was_clean=all(code in (0, -number) for code in codes))

    def _signal_all(self, number: int) -> None:
        for child in self.children:
            _signal(child, number)

    def _pass_on(self) -> None:
        """One child after the other, as all write to one place; a child that has not begun may not know the signal."""
        while self._to_pass_on:
            number = self._to_pass_on.pop(0)
            for child in self.children:
                if child.is_working:
                    _signal(child, number)
                    time.sleep(TURN)


def _signal(child: Child, number: int) -> None:
    if child.process is not None and child.is_alive and child.process.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.process.pid, number)


def _child_main(main: ChildMain, arguments: dict[str, Any], tells_start: Connection) -> None:
    """In the new process: apart from the terminal's signals, which the parent passes on."""
    os.setpgid(0, 0)
    request = StopState()
    request.on_started = lambda: _tell(tells_start, STARTED)
    with handled_signals(request):
        django.setup()
        _stop_with_parent(request)
        try:
            code = main(request, arguments)
        except GraphileWorkerError as error:
            _tell(tells_start, str(error))
            code = error.exit_code
    if request.leaves_jobs_behind:
        leave(code)
    if request.is_made:
        end_in_time(code)
    raise SystemExit(code)


def _tell(connection: Connection, message: str) -> None:
    # A supervisor that was killed meanwhile hears nothing any more; the child is about to notice.
    with contextlib.suppress(OSError):
        connection.send(message)


def _stop_with_parent(request: StopState) -> None:
    """A supervisor that is killed passes no signal on; its children end by themselves."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinels: Sequence[Any]) -> None:
        wait(sentinels)
        request("the supervisor is gone")

    threading.Thread(target=watch, args=([parent.sentinel],), daemon=True).start()
