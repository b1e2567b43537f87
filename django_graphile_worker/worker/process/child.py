"""A child of the supervisor: the supervisor's record of it, and the code with which the child begins."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import django

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.gc_pause import collect_less_often
from django_graphile_worker.worker.process.exit import end_process
from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.stop_request import StopState

# Seconds. A child that dies later is replaced at once: the cause of its death may not occur again.
QUICK_DEATH = 5.0
LONGEST_BACKOFF = 10.0
# Seconds that a child has to write its stacks before anything else happens.
DUMP_TIME = 0.1
# What a child sends when its signal handlers are installed, and when it has begun to work. Any other message is the
# error that keeps it from working.
HANDLES_SIGNALS, STARTED = "handles signals", "started"
# What a child sends every few seconds while it is healthy, and when it will send this no more, because it ends.
HEALTHY, ENDS = "healthy", "ends"
# What a child sends when a job of it does not stop: it runs no more jobs, and another process should take its place.
RETIRES = "retires"

# Writes the stacks of all threads of a child that hangs to standard error. A handler in C, which needs no lock of the
# interpreter. It can end the process, which the supervisor kills anyway.
STACKS_SIGNAL = signal.SIGRTMIN + 5 if hasattr(signal, "SIGRTMIN") else None

ChildMain = Callable[[StopState, dict[str, Any]], int]


class Child:
    """A numbered place for a worker process, and the history of the processes in it."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.process: SpawnProcess | None = None
        self.started_at = 0.0
        self.quick_deaths = 0
        # How often in a row a process died before it had begun to work.
        self.failed_starts = 0
        self.start_after = 0.0
        self.has_started: Connection | None = None
        self._has_begun = False
        self._handles_signals = False
        self._retires = False
        # The seconds since the process has last reported that it is healthy. It is watched from its first report on.
        self.silent_seconds = 0.0
        self._is_watched = False
        # Whether the supervisor has killed the process because it was silent.
        self.is_hung = False
        # The error that keeps the process from working, as the process reported it.
        self.problem = ""
        # The exit code of the last process, once the supervisor has noted its death.
        self.exit_code: int | None = None
        # The last process that had begun to work, and why it was replaced: the next process that begins to work writes
        # the event. The supervisor itself has no connection to the database.
        self.replaced: dict[str, Any] | None = None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    @property
    def is_working(self) -> bool:
        return self.is_alive and self.has_begun()

    @property
    def handles_signals(self) -> bool:
        """Has the process installed its signal handlers? Before, a signal that stops nothing would kill it."""
        self._read_messages()
        return self.is_alive and self._handles_signals

    def has_begun(self) -> bool:
        """Has this process, or the last process if it is dead, begun to work?"""
        self._read_messages()
        return self._has_begun

    def _read_messages(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while self.has_started is not None and self.has_started.poll():
                message = self.has_started.recv()
                if message == HANDLES_SIGNALS:
                    self._handles_signals = True
                elif message == STARTED:
                    self._has_begun = True
                elif message == RETIRES:
                    self._retires = True
                elif message in (HEALTHY, ENDS):
                    self.silent_seconds, self._is_watched = 0.0, message == HEALTHY
                else:
                    self.problem = str(message)

    @property
    def retires(self) -> bool:
        """Does the process run no more jobs than it has begun, so that another should take its place?"""
        self._read_messages()
        return self.process is not None and self._retires

    def note_seconds(self, seconds: float) -> None:
        """Note that the supervisor has watched the process for so long since it last did."""
        self.silent_seconds += seconds
        self._read_messages()
        if not self._is_watched:
            self.silent_seconds = 0.0

    def kill(self) -> None:
        """Kill the process, which hangs, and have it write first where it hangs."""
        if STACKS_SIGNAL is not None:
            self.signal(STACKS_SIGNAL)
            # The process does not tell when it has written its stacks.
            time.sleep(DUMP_TIME)
        self.signal(signal.SIGKILL)
        self.is_hung = True

    def leave_place(self) -> SpawnProcess:
        """Return the process, which retires; another process may start in this place."""
        assert self.process is not None
        process, self.process = self.process, None
        self.replaced = {"cause": "job_does_not_stop", "former_pid": process.pid}
        self._close()
        return process

    def start(self, context: SpawnContext, main: ChildMain, arguments: dict[str, Any]) -> None:
        """Start a new process in this place."""
        self._has_begun, self._handles_signals, self._retires, self.problem = False, False, False, ""
        self.silent_seconds, self._is_watched, self.is_hung = 0.0, False, False
        self.has_started, reports_start = context.Pipe(duplex=False)
        self.process = context.Process(
            target=run_child,
            args=(main, arguments | {"place": self.place, "replaced": self.replaced}, reports_start),
            name=f"graphile-worker-{self.place}",
        )
        self.process.start()
        reports_start.close()

    def _close(self) -> None:
        if self.has_started is not None:
            self.has_started.close()
            self.has_started = None

    def signal(self, number: int) -> None:
        if self.process is not None:
            send_signal(self.process, number)

    def note_death(self, now: float) -> None:
        """Count the death of the process, and decide when the next process may start."""
        process, self.process = self.process, None
        self.exit_code = process.exitcode if process is not None else None
        had_started = self.has_begun()
        self._note_replaced(process, had_started)
        self._close()
        was_quick = now - self.started_at < QUICK_DEATH or not had_started
        self.quick_deaths = self.quick_deaths + 1 if was_quick else 0
        self.failed_starts = 0 if had_started else self.failed_starts + 1
        delay = min(LONGEST_BACKOFF, 0.1 * 2 ** min(self.quick_deaths, 10)) if self.quick_deaths else 0.0
        self.start_after = now + delay

    def _note_replaced(self, process: SpawnProcess | None, had_started: bool) -> None:
        if self.is_hung:
            self.replaced = {"cause": "hung"}
        elif had_started or self.replaced is None:
            self.replaced = {"cause": "ended"}
        self.replaced["former_pid"] = None if process is None else process.pid
        self.replaced["exit_code"] = self.exit_code


def send_signal(process: SpawnProcess, number: int) -> None:
    """Send a signal to a process, unless it has ended."""
    if process.is_alive() and process.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def run_child(main: ChildMain, arguments: dict[str, Any], supervisor: Connection) -> None:
    """Run ``main`` in the new process, and end the process.

    The process leaves the process group of the terminal: the supervisor passes on the signals of the terminal.
    """
    os.setpgid(0, 0)
    request = StopState()
    request.on_started = lambda: send(supervisor, STARTED)
    request.on_retiring = lambda: send(supervisor, RETIRES)
    if STACKS_SIGNAL is not None:
        # Without a standard error, there is nowhere to write to.
        with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):
            faulthandler.register(STACKS_SIGNAL, file=sys.stderr, all_threads=True)
    # The supervisor may send its second signal when this process calls its exit handlers, which it must not end.
    with handled_signals(request, afterwards={signal.SIGQUIT: signal.SIG_IGN}):
        send(supervisor, HANDLES_SIGNALS)
        django.setup()
        collect_less_often()
        _stop_with_parent(request)
        try:
            code = main(request, arguments | {"supervisor": supervisor})
        except GraphileWorkerError as error:
            send(supervisor, str(error))
            code = error.exit_code
    end_process(request, code)
    raise SystemExit(code)


def send(connection: Connection, message: str) -> None:
    """Send a message to the supervisor, from any thread: the system writes one so short at once."""
    # A supervisor that was killed in the meantime reads nothing; _stop_with_parent() stops this child then.
    with contextlib.suppress(OSError):
        connection.send(message)


def _stop_with_parent(request: StopState) -> None:
    """Request a stop when the supervisor has ended: a supervisor that is killed passes on no signal."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinels: Sequence[Any]) -> None:
        wait(sentinels)
        request("the supervisor is gone")

    threading.Thread(target=watch, args=([parent.sentinel],), daemon=True).start()
