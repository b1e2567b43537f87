"""The supervisor: a process that runs several worker processes, to use more than one processor core.

``Supervisor`` starts, watches, replaces and stops the processes. ``Child`` is its record of one of them, and
``run_child()`` is the code with which a child begins.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import django

from django_graphile_worker.exceptions import BreakingMigrationError, GraphileWorkerError
from django_graphile_worker.text import readable_duration
from django_graphile_worker.worker.process.signal_handlers import DUMP_SIGNAL, handled_signals, is_free
from django_graphile_worker.worker.process.systemd import Systemd
from django_graphile_worker.worker.process.worker_process import collect_less_often, end_process, exit_code
from django_graphile_worker.worker.stop_request import WorkerStop

logger = logging.getLogger("django_graphile_worker.worker")

# The supervisor gives up after this many deaths in a row of a child that had not begun to work, while no other child
# works: the child cannot start, and further attempts would only cost processor time. The death of a child that had
# begun to work does not count: a job may cause it, and other jobs wait.
FAILED_START_LIMIT = 5
CANNOT_START = 70
# At most this many retired processes, or one for each place, may finish their jobs in their own time. The oldest of
# more is stopped.
MAX_RETIRED = 4
# Seconds. Healthy processes report to the supervisor, and write their health files, at least this often.
LONGEST_INTERVAL = 5.0
# Seconds. A child that dies later is replaced at once: the cause of its death may not occur again.
QUICK_DEATH = 5.0
LONGEST_BACKOFF = 10.0
# Seconds that a child has until its first report of health, or the timeout of workers if that is longer. It reports as
# soon as the project is loaded, also while the database does not answer.
START_TIMEOUT = 300.0
# Seconds that a child has to write its stacks before anything else happens.
DUMP_TIME = 0.1
# What a child sends when its signal handlers are installed, and when it has begun to work. Any other message is the
# error that keeps it from working.
HANDLES_SIGNALS, STARTED = "handles signals", "started"
# What a child sends when it is registered and can claim jobs, every few seconds while it is healthy, and when it will
# send this no more, because it ends.
READY, HEALTHY, ENDS = "ready", "healthy", "ends"
# What a child sends when it runs no more jobs than it has begun, so that another process should take its place: a job
# of it does not stop, the supervisor has asked for it, or it has reached one of its limits.
RETIRES = "retires"
# What a child sends, with the reason, when it comes near one of its limits, and what the supervisor answers when
# another process is ready to take its place.
RECYCLES, RETIRE = "recycles", "retire"

# Writes the stacks of all threads of a child that hangs to standard error. A handler in C, which needs no lock of the
# interpreter. It can end the process, which the supervisor kills anyway.
STACKS_SIGNAL = signal.SIGRTMIN + 5 if hasattr(signal, "SIGRTMIN") else None

ChildMain = Callable[[WorkerStop, dict[str, Any]], int]


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
        systemd: Systemd | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._main = main
        self._arguments = arguments
        self._replaces = replaces
        self._systemd = systemd or Systemd()
        # A child that has not been healthy for so long is killed. Its lease is over, and others recover its jobs.
        self.worker_timeout = worker_timeout
        self._interval = report_interval(worker_timeout)
        self._clock = clock
        self._watched_at = clock()
        self._context = multiprocessing.get_context("spawn")
        self.children = [Child(place) for place in range(processes)]
        # Processes that run no more jobs than they have begun, the oldest first. Others have their places.
        self._retired: list[SpawnProcess] = []
        # Those of them that were stopped. A second signal would cut off their jobs.
        self._stopped: list[SpawnProcess] = []
        self._has_given_up = False
        # Signals to pass on to the children.
        self._to_pass_on: list[int] = []
        self._has_ever_worked = False
        # The error that keeps all children from working.
        self._problem = ""
        self._is_refused = False

    def seconds_since_turn(self) -> float:
        """Return how long ago this process last looked after its children; usually a few seconds."""
        return self._clock() - self._watched_at

    def run(self, request: WorkerStop) -> int:
        """Keep the children running until a stop is requested; return the exit code.

        Raises the error that keeps all children from working.
        """
        for child in self.children:
            self._start(child)
        with self._passing_on(DUMP_SIGNAL):
            return self._run(request)

    @contextlib.contextmanager
    def _passing_on(self, number: signal.Signals) -> Iterator[None]:
        """Pass on a signal that stops nothing to the children; only the main thread may handle signals."""
        if threading.current_thread() is not threading.main_thread() or not is_free(number):
            yield
            return
        # The handler only notes the signal: it may interrupt the loop while the loop reads a message of a child.
        before = signal.signal(number, lambda *_: self._to_pass_on.append(number))
        try:
            yield
        finally:
            signal.signal(number, before)

    def _run(self, request: WorkerStop) -> int:
        while not request.is_made and not self._has_given_up and any(self._is_wanted(c) for c in self.children):
            self._watch(request)
        code = self._stop(request)
        if self._problem:
            raise (BreakingMigrationError if self._is_refused else GraphileWorkerError)(self._problem)
        return code

    def _is_wanted(self, child: Child) -> bool:
        # Until its death is noted, not only until it is dead: it may have sent the error that keeps it from working.
        return child.process is not None or self._replaces

    def _watch(self, request: WorkerStop) -> None:
        """Wait for a death, a stop request, or the time to start a child again."""
        # A child that has just died still has a sentinel, which ends the wait at once.
        sentinels = [child.process.sentinel for child in self._places() if child.process]
        messages = [child.has_started for child in self._places() if child.process and child.has_started]
        retired = [process.sentinel for process in self._retired]
        wait([*sentinels, *messages, *retired, request.fileno()], self._timeout())
        request.drain()
        self._pass_on()
        self._forget_ended()
        self._kill_hung()
        for child in self._places():
            self._attend(child)
        ready = sum(child.is_ready for child in self.children)
        status = f"Processes ready: {ready} of {len(self.children)}."
        self._systemd.report(is_ready=ready == len(self.children), status=status)

    def _places(self) -> list[Child]:
        """Return the children, and those that are to take the places of some."""
        return [*self.children, *(child.spare for child in self.children if child.spare)]

    def _timeout(self) -> float:
        """Return the seconds until a child has to be started, or the health of the children has to be checked."""
        waiting = [child.start_after for child in self._places() if not child.process] if self._replaces else []
        longest = min(self._interval, self._systemd.interval)
        return min([longest, *(max(start_after - self._clock(), 0.0) for start_after in waiting)])

    def _kill_hung(self) -> None:
        """Kill the children that have not reported for the timeout that they are healthy.

        Either none of their threads can run, as while a job keeps the lock of the interpreter, or a part has died. A
        child that has never reported waits for something while it loads the project.
        """
        now = self._clock()
        # Time in which this process did not run itself does not count: its children may have been suspended with it.
        seconds, self._watched_at = min(now - self._watched_at, self._interval), now
        for child in self._places():
            child.note_seconds(seconds)
            limit = self.worker_timeout if child.was_healthy else max(START_TIMEOUT, self.worker_timeout)
            if child.silent_seconds >= limit and child.is_alive and not child.is_hung:
                logger.warning(
                    "Worker process %s has not %s for %s: killing it.",
                    child.process.pid if child.process else None,
                    "been healthy" if child.was_healthy else "begun to work",
                    readable_duration(limit),
                )
                child.kill()

    def _attend(self, child: Child) -> None:
        if child.is_alive:
            # A process that is to take a place may come near its own limit before it has the place.
            if self.children[child.place] is child:
                if child.recycles:
                    self._recycle(child)
                if child.retires:
                    self._retire(child)
            return
        if child.process is not None:
            self._note_death(child)
        if child.spare:
            self.children[child.place] = child.spare
        elif self._replaces and not self._has_given_up and self._clock() >= child.start_after:
            self._start(child)

    def _recycle(self, child: Child) -> None:
        """Start another process beside a child that comes near a limit; the child retires when the other is ready."""
        if child.spare is None:
            pid = child.process.pid if child.process is not None else None
            logger.info("Worker process %s %s; replacing it.", pid, child.recycles)
            child.spare = Child(child.place, is_successor=True)
            self._start(child.spare)
        elif child.spare.is_ready:
            child.ask_to_retire()

    def _retire(self, child: Child) -> None:
        """Have another process in the place of a child that runs no more jobs than it has begun."""
        process = child.leave_place()
        if not child.recycles:
            logger.warning("Worker process %s has a job that does not stop; replacing it.", process.pid)
        elif child.spare and child.spare.is_ready:
            logger.info("Worker process %s begins no more jobs: another process takes its place.", process.pid)
        else:
            logger.warning("Worker process %s reached its limit before the next was ready: is it low?", process.pid)
        self._retired.append(process)
        most = max(MAX_RETIRED, len(self.children))
        for oldest in self._retired[:-most]:
            if oldest not in self._stopped:
                self._stopped.append(oldest)
                oldest.terminate()
        if child.spare:
            self.children[child.place] = child.spare
        elif self._replaces:
            self._start(child)

    def _forget_ended(self) -> None:
        ended = [process for process in self._retired if not process.is_alive()]
        for process in ended:
            self._retired.remove(process)
            self._stopped = [each for each in self._stopped if each is not process]
            if process.exitcode:
                logger.warning("Worker process %s ended with exit code %s.", process.pid, process.exitcode)

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
        child.started_at = self._clock()
        try:
            child.start(self._context, self._main, self._arguments)
        except OSError as error:
            # The system has no descriptor, process or memory left. It may have again; other children work meanwhile.
            again = f"; trying again in {readable_duration(child.back_off(self._clock()))}" if self._replaces else ""
            logger.warning("A worker process cannot be started: %s%s.", error.strerror or error, again)

    def _stop(self, request: WorkerStop) -> int:
        number = request.signal_number or signal.SIGTERM
        self._systemd.report_stopping()
        for process in self._processes():
            if process not in self._stopped:
                send_signal(process, number)
        was_urgent = False
        while alive := [process.sentinel for process in self._processes() if process.is_alive()]:
            if request.is_urgent and not was_urgent:
                was_urgent = True
                # Not the same signal again: a busy child that has not handled the first would get the two as one.
                for process in self._processes():
                    send_signal(process, signal.SIGQUIT)
            request.drain()
            self._pass_on()
            wait([*alive, request.fileno()], min(self._interval, self._systemd.interval, 1.0))
            self._kill_hung()
            self._systemd.report(is_ready=False, status="")
        codes = [process.exitcode for process in self._processes()]
        if not self._replaces:
            codes += [child.exit_code for child in self.children if not child.process]
        if self._has_given_up:
            return BreakingMigrationError.exit_code if self._is_refused else CANNOT_START
        # A child that the signal ended before it could handle the signal had not begun anything.
        return exit_code(request, was_clean=all(code in (0, -number) for code in codes))

    def _processes(self) -> list[SpawnProcess]:
        return [*(child.process for child in self._places() if child.process), *self._retired]

    def _pass_on(self) -> None:
        """Send the noted signals to one child after the other, because all children write to the same stream."""
        while self._to_pass_on:
            number = self._to_pass_on.pop(0)
            for child in self._places():
                if child.handles_signals:
                    child.signal(number)
                    # A child does not report when it has written its stacks.
                    time.sleep(DUMP_TIME)


class Child:
    """A numbered place for a worker process, and the history of the processes in it."""

    def __init__(self, place: int, *, is_successor: bool = False) -> None:
        self.place = place
        # Whether its first process is to take the place of another.
        self.is_successor = is_successor
        # The child that is to take the place.
        self.spare: Child | None = None
        # Why the process is to be replaced before it reaches a limit; empty while it is not.
        self.recycles = ""
        self.process: SpawnProcess | None = None
        self.started_at = 0.0
        self.quick_deaths = 0
        # How often in a row a process died before it had begun to work.
        self.failed_starts = 0
        self.start_after = 0.0
        self.has_started: Connection | None = None
        self._has_begun = False
        self._handles_signals = False
        self._is_ready = False
        self._retires = False
        self._was_asked_to_retire = False
        # The seconds since the process was started or has last reported that it is healthy, until it ends.
        self.silent_seconds = 0.0
        self.was_healthy = self._ends = False
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
                elif message == READY:
                    self._is_ready = True
                elif message == RETIRES:
                    self._retires = True
                elif isinstance(message, tuple):
                    _, self.recycles = message
                elif message in (HEALTHY, ENDS):
                    self.silent_seconds, self.was_healthy, self._ends = 0.0, True, message == ENDS
                else:
                    self.problem = str(message)

    @property
    def is_ready(self) -> bool:
        """Is the process registered, so that it can claim jobs?"""
        self._read_messages()
        return self.is_alive and self._is_ready

    def ask_to_retire(self) -> None:
        """Have the process run no more jobs than it has begun."""
        if self.has_started is not None and not self._was_asked_to_retire:
            self._was_asked_to_retire = True
            send(self.has_started, RETIRE)

    @property
    def retires(self) -> bool:
        """Does the process run no more jobs than it has begun, so that another should take its place?"""
        self._read_messages()
        return self.process is not None and self._retires

    def note_seconds(self, seconds: float) -> None:
        """Note that the supervisor has watched the process for so long since it last did."""
        self.silent_seconds += seconds
        self._read_messages()
        if self._ends:
            self.silent_seconds = 0.0

    def kill(self) -> None:
        """Kill the process, which hangs, and have it write first where it hangs."""
        if STACKS_SIGNAL is not None:
            self.signal(STACKS_SIGNAL)
            # The process does not report when it has written its stacks.
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
        """Start a new process in this place. Raises OSError when the system cannot."""
        self._has_begun, self._handles_signals, self._is_ready, self._retires = False, False, False, False
        self._was_asked_to_retire, self.recycles, self.problem = False, "", ""
        self.silent_seconds, self.was_healthy, self._ends, self.is_hung = 0.0, False, False, False
        has_started, reports_start = context.Pipe()
        is_successor = self.is_successor or self.replaced is not None
        about: dict[str, Any] = {"place": self.place, "replaced": self.replaced, "is_successor": is_successor}
        about["spawned_at"] = time.monotonic()
        process = context.Process(
            target=run_child,
            args=(main, arguments | about, reports_start),
            name=f"graphile-worker-{self.place}",
        )
        try:
            process.start()
        except BaseException:
            has_started.close()
            raise
        finally:
            reports_start.close()
        self.process, self.has_started = process, has_started

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
        self.failed_starts = 0 if had_started else self.failed_starts + 1
        if now - self.started_at < QUICK_DEATH or not had_started:
            self.back_off(now)
        else:
            self.quick_deaths, self.start_after = 0, now

    def back_off(self, now: float) -> float:
        """Let the next process start later, longer each time in a row; return the seconds until then."""
        self.quick_deaths += 1
        delay: float = min(LONGEST_BACKOFF, 0.1 * 2 ** min(self.quick_deaths, 10))
        self.start_after = now + delay
        return delay

    def _note_replaced(self, process: SpawnProcess | None, had_started: bool) -> None:
        if self.is_hung:
            self.replaced = {"cause": "hung"}
        elif had_started or self.replaced is None:
            self.replaced = {"cause": "ended"}
        self.replaced["former_pid"] = None if process is None else process.pid
        self.replaced["exit_code"] = self.exit_code


def report_interval(valid_seconds: float) -> float:
    """Return the seconds between two reports of a process that counts as healthy for so long after each."""
    return min(LONGEST_INTERVAL, valid_seconds / 4)


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
    request = WorkerStop()
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
        _heed_parent(request, supervisor)
        try:
            code = main(request, arguments | {"supervisor": supervisor})
        except GraphileWorkerError as error:
            send(supervisor, str(error))
            code = error.exit_code
    end_process(request, code)
    raise SystemExit(code)


def send(connection: Connection, message: str | tuple[str, str]) -> None:
    """Send a message to the supervisor or to a child, from any thread: the system writes one so short at once."""
    # A supervisor that was killed in the meantime reads nothing; _heed_parent() stops this child then.
    with contextlib.suppress(OSError):
        connection.send(message)


def _heed_parent(request: WorkerStop, supervisor: Connection) -> None:
    """Retire when the supervisor asks for it, and stop when it has ended: one that is killed passes on no signal."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    end: Any = parent.sentinel

    def watch() -> None:
        watched = [end, supervisor]
        while end not in wait(watched):
            try:
                # There is only one message.
                supervisor.recv()
                request.retire()
            except (EOFError, OSError):
                # Another process has the place.
                watched.remove(supervisor)
        request("the supervisor is gone")

    threading.Thread(target=watch, daemon=True).start()
