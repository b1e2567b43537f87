"""A child of the supervisor: the supervisor's record of it, and the code with which the child begins."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TYPE_CHECKING, Any

import django

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.gc_pause import collect_less_often
from django_graphile_worker.worker.process.exit import end_process
from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.stop_request import StopState

if TYPE_CHECKING:
    from django_graphile_worker.worker.overdue.watch import Overdue, OverdueWatch

# Seconds. A child that dies later is replaced at once: the cause of its death may not occur again.
QUICK_DEATH = 5.0
LONGEST_BACKOFF = 10.0
# What a child sends when its signal handlers are installed, and when it has begun to work. Any other message is the
# error that keeps it from working.
HANDLES_SIGNALS, STARTED = "handles signals", "started"
# What a child sends when a job of it does not stop: it runs no more jobs, and another process should take its place.
RETIRES = "retires"

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
        # Watches the runs of the process that have a time limit; None if no task has one.
        self.watch: OverdueWatch | None = None
        # The runs that the last process could not stop, for the next process.
        self.overdue: Overdue | None = None
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
                else:
                    self.problem = str(message)

    @property
    def retires(self) -> bool:
        """Does the process run no more jobs than it has begun, so that another should take its place?"""
        self._read_messages()
        return self.process is not None and self._retires

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
        self.has_started, reports_start = context.Pipe(duplex=False)
        self.process = context.Process(
            target=run_child,
            args=(main, arguments | self._own_arguments(), reports_start),
            name=f"graphile-worker-{self.place}",
        )
        self.process.start()
        reports_start.close()

    def _own_arguments(self) -> dict[str, Any]:
        overdue, self.overdue = self.overdue, None
        records = None if self.watch is None else self.watch.records.path
        return {"place": self.place, "records": records, "overdue": overdue, "replaced": self.replaced}

    def _close(self) -> None:
        if self.has_started is not None:
            self.has_started.close()
            self.has_started = None
        if self.watch is not None:
            self.watch.close()
            self.watch = None

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
        was_quick = self.overdue is None and (now - self.started_at < QUICK_DEATH or not had_started)
        self.quick_deaths = self.quick_deaths + 1 if was_quick else 0
        self.failed_starts = 0 if had_started else self.failed_starts + 1
        delay = min(LONGEST_BACKOFF, 0.1 * 2 ** min(self.quick_deaths, 10)) if self.quick_deaths else 0.0
        self.start_after = now + delay

    def _note_replaced(self, process: SpawnProcess | None, had_started: bool) -> None:
        if self.overdue is not None:
            self.replaced = {"cause": "time_limit", "job_ids": [run.job_id for run in self.overdue.runs]}
        elif had_started or self.replaced is None:
            self.replaced = {"cause": "ended"}
        self.replaced["former_pid"] = None if process is None else process.pid
        self.replaced["exit_code"] = self.exit_code


def send_signal(process: SpawnProcess, number: int) -> None:
    """Send a signal to a process, unless it has ended."""
    if process.is_alive() and process.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def run_child(main: ChildMain, arguments: dict[str, Any], reports_start: Connection) -> None:
    """Run ``main`` in the new process, and end the process.

    The process leaves the process group of the terminal: the supervisor passes on the signals of the terminal.
    """
    os.setpgid(0, 0)
    request = StopState()
    request.on_started = lambda: _send(reports_start, STARTED)
    request.on_retiring = lambda: _send(reports_start, RETIRES)
    # The supervisor may send its second signal when this process calls its exit handlers, which it must not end.
    with handled_signals(request, afterwards={signal.SIGQUIT: signal.SIG_IGN}):
        _send(reports_start, HANDLES_SIGNALS)
        django.setup()
        collect_less_often()
        _stop_with_parent(request)
        try:
            code = main(request, arguments)
        except GraphileWorkerError as error:
            _send(reports_start, str(error))
            code = error.exit_code
    end_process(request, code)
    raise SystemExit(code)


def _send(connection: Connection, message: str) -> None:
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
