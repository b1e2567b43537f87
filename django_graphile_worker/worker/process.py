"""A worker process: its runners, its signals, its exit code."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import psycopg

from django_graphile_worker import logs
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.worker.runner import LOOK_INTERVAL, Ending, Question, Runner, never

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Was the worker asked to stop, and how often? Call it to ask: once to let jobs end, twice to stop at once.

    A signal handler may run between any two instructions, so it takes no lock
    and calls nobody: it counts. The byte that wakes the one who waits is written
    before, by Python itself: a signal that comes just as the main thread falls
    asleep, or to another thread, would have its handler called only after that.
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.signal_number: int | None = None
        # Called when the worker has started.
        self.on_started: Callable[[], None] = lambda: None
        # How the worker's life ended, once it is over.
        self.ending: Ending | None = None
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def __call__(self, reason: str = "stop") -> None:
        """Ask, from any thread or signal handler."""
        self.reasons.append(reason)
        with contextlib.suppress(OSError):
            os.write(self._writer, b".")

    def be_woken_by_signals(self) -> int:
        """Have each signal write a byte; what did so until now is the answer."""
        return signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        self(signal.Signals(number).name)

    @property
    def is_made(self) -> bool:
        return bool(self.reasons)

    @property
    def is_urgent(self) -> bool:
        return len(self.reasons) > 1

    @property
    def leaves_jobs_behind(self) -> bool:
        """Is the end not to be held up by what may still run in this process? See leaving.py."""
        return self.is_urgent or (self.ending is not None and self.ending.was_cut_off)

    @property
    def reason(self) -> str:
        return self.reasons[0] if self.reasons else "finished"

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the next request; True when the worker is to stop."""
        while not self.is_made and select.select([self._reader], [], [], timeout)[0]:
            # A signal: by the next look its handler has told whether it was one of ours.
            self.drain()
        return self.is_made

    def fileno(self) -> int:
        return self._reader

    def drain(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._reader, 4096)

    def close(self) -> None:
        """Give its two file descriptors back, once the worker is over."""
        for descriptor in (self._reader, self._writer):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@contextmanager
def handled_signals(request: StopRequest) -> Iterator[None]:
    """Turn SIGTERM, SIGINT and SIGHUP into stop requests; only the main thread may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    woken_before = request.be_woken_by_signals()
    before: dict[signal.Signals, Any] = {}
    for number in STOP_SIGNALS:
        before[number] = signal.signal(number, request.handle_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken_before)


def start_all(runners: Sequence[Runner], should_stop: Question = never, *, waits: bool = False) -> None:
    """Start them; of several those whose databases answer, and the others later. shut_down() is its counterpart.

    Where no database answers this is an error, unless ``waits`` says that they are to be waited for.
    """
    _tell_apart(runners)
    if len(runners) == 1:
        _start_alone(runners[0], waits=waits)
        return
    beginnings = {runner.using: runner.begin() for runner in runners}
    for beginning in beginnings.values():
        while not beginning.has_tried.wait(LOOK_INTERVAL) and not should_stop():
            pass
    troubles = {alias: beginning.trouble for alias, beginning in beginnings.items()}
    _raise_what_keeps_all(troubles, waits=waits)


def _start_alone(runner: Runner, *, waits: bool) -> None:
    try:
        runner.start()
    except psycopg.OperationalError as error:
        if not waits or not _may_pass(error):
            raise
        runner.begin()


def _may_pass(error: BaseException | None) -> bool:
    # Here, as a start that goes well needs none of it.
    from django_graphile_worker.worker.trouble import may_pass

    return isinstance(error, psycopg.OperationalError) and may_pass(error)


def _raise_what_keeps_all(troubles: Mapping[str, BaseException | None], *, waits: bool) -> None:
    """A mistake, which time does not mend, or no answer from anywhere."""
    if waits and all(_may_pass(trouble) for trouble in troubles.values() if trouble is not None):
        return
    away = {alias: trouble for alias, trouble in troubles.items() if isinstance(trouble, psycopg.Error)}
    for alias, trouble in troubles.items():
        if trouble is not None and alias not in away:
            raise trouble
    if len(away) == len(troubles):
        raise _unanswered(away)


def _unanswered(troubles: Mapping[str, psycopg.Error]) -> GraphileWorkerError:
    from django_graphile_worker.worker.trouble import in_a_sentence

    error = GraphileWorkerError(" ".join(in_a_sentence(trouble, alias) for alias, trouble in troubles.items()))
    error.__cause__ = next(iter(troubles.values()))
    return error


def _tell_apart(runners: Sequence[Runner]) -> None:
    logs.served_databases.add(runner.using for runner in runners)


def run_until_stopped(runners: Sequence[Runner], request: StopRequest, *, waits: bool = False) -> int:
    """Work until asked to stop; the exit code."""
    try:
        start_all(runners, lambda: request.is_made, waits=waits)
        request.on_started()
        request.wait()
    finally:
        ending = _end(runners, request)
    return exit_code(request, ending.was_released)


def run_until_drained(runners: Sequence[Runner], request: StopRequest) -> int:
    """Run what is runnable, then stop; the exit code."""
    away: dict[str, psycopg.Error] = {}
    try:
        _tell_apart(runners)
        for runner in runners:
            try:
                runner.drain(lambda: request.is_made)
            except psycopg.Error as error:
                if len(runners) == 1:
                    raise
                away[runner.using] = error
    finally:
        ending = _end(runners, request)
    if away:
        raise _unanswered(away)
    return exit_code(request, ending.was_released)


def _end(runners: Sequence[Runner], request: StopRequest) -> Ending:
    request.ending = shut_down(runners, request.reason, is_forced=lambda: request.is_urgent)
    return request.ending


def exit_code(request: StopRequest, was_clean: bool) -> int:
    """0 when everything ended well; 128 + the signal, as shells say it, when it was cut short."""
    if was_clean and not request.is_urgent:
        return 0
    return 128 + request.signal_number if request.signal_number else 1


def shut_down(runners: Sequence[Runner], reason: str, *, is_forced: Question = never) -> Ending:
    """All at once: the grace period is one, however many databases there are."""
    endings: list[Ending] = []
    threads = [
        threading.Thread(
            target=lambda runner=runner: endings.append(runner.end(reason, is_forced=is_forced)), daemon=True
        )
        for runner in runners
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs.served_databases.remove(runner.using for runner in runners)
    have_all_ended = len(endings) == len(runners)
    return Ending(
        was_released=have_all_ended and all(ending.was_released for ending in endings),
        was_cut_off=not have_all_ended or any(ending.was_cut_off for ending in endings),
    )
