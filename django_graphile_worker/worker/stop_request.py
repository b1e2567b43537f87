"""Requests to stop a worker: ``StopRequest`` for the caller, ``WorkerStop`` for the worker."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType

from django_graphile_worker.exceptions import GraphileWorkerError

# The reason of a stop after a newer graphile-worker has changed the schema; the error has the details.
REFUSED = "the schema is too new"
# The reason of a stop after another process has taken the place of this process.
RETIRED = "another process takes its place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a worker ended."""

    # Whether every job was released, with its result or by returning it.
    was_released: bool
    # Whether a job still ran when the grace period was over.
    was_cut_off: bool


class WorkerStop:
    """The requests to stop a worker: the first lets jobs end, the second stops at once.

    A signal handler may run between any two instructions, so it takes no lock and calls no other code: it only counts.
    The byte that wakes the waiting main thread is written before the handler runs, by Python itself (set_wakeup_fd):
    if a signal arrives just as the main thread begins to wait, or on another thread, Python calls the handler only
    after the wait.
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.signal_number: int | None = None
        # The error that stops the worker, None if no error does.
        self.refusal: GraphileWorkerError | None = None
        # Whether a run ended without its thread, which may run on until the process ends.
        self.has_left_thread = False
        # Whether the worker should run no more jobs than it has begun, because another process takes its place.
        self.must_retire = False
        # Called once to have another process take the place of this process; None if no supervisor could, or one does.
        self.on_retiring: Callable[[], None] | None = None
        # Called when the worker has started.
        self.on_started: Callable[[], None] = lambda: None
        # Called when the worker begins to stop.
        self.on_stopping: Callable[[], None] = lambda: None
        # How the worker ended; None until it has ended.
        self.ending: Ending | None = None
        self._reader, self._writer = os.pipe()
        self._is_closed = False
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def __call__(self, reason: str = "stop") -> None:
        """Request a stop, from any thread or signal handler."""
        self.reasons.append(reason)
        with contextlib.suppress(OSError):
            os.write(self._writer, b".")

    def refuse(self, error: GraphileWorkerError) -> None:
        """Request a stop because of an error."""
        self.refusal = error
        self(REFUSED)

    def note_left_thread(self) -> None:
        """Note that a run ended without its thread, and have another process take the place of this process."""
        if not self.has_left_thread:
            self.retire()
        self.has_left_thread = True

    def retire(self) -> None:
        """Have another process take the place of this process, from any thread; without a supervisor, do nothing."""
        if self.on_retiring is not None:
            self.must_retire = True
            with contextlib.suppress(OSError):
                os.write(self._writer, b".")

    def be_woken_by_signals(self) -> int:
        """Have Python write a byte for each signal; return the descriptor that Python wrote to before."""
        return signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        name = signal.Signals(number).name
        self(name)
        if number == signal.SIGQUIT:
            # SIGQUIT stops the worker at once, like two other signals.
            self(name)

    @property
    def is_made(self) -> bool:
        return bool(self.reasons)

    @property
    def is_urgent(self) -> bool:
        # A process that retires ends by itself: the first signal that comes then lets its jobs end as well.
        return len(self.reasons) - self.reasons.count(RETIRED) > 1

    @property
    def leaves_jobs_behind(self) -> bool:
        """May a job still run in this process? The process must not wait for it at its end, see ``end_process()``."""
        return self.is_urgent or self.has_left_thread or (self.ending is not None and self.ending.was_cut_off)

    @property
    def reason(self) -> str:
        return self.reasons[0] if self.reasons else "finished"

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a request, at most for the timeout; return True if a request was made.

        Returns False when the worker must retire.
        """
        while not self.is_made and not self.must_retire and select.select([self._reader], [], [], timeout)[0]:
            # A signal arrived. By the next check of is_made its handler has run, and has counted it if it is to stop.
            self.drain()
        return self.is_made

    def fileno(self) -> int:
        return self._reader

    def drain(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._reader, 4096)

    def close(self) -> None:
        """Close the two file descriptors, after the worker has ended. Calling it again changes nothing."""
        was_closed, self._is_closed = self._is_closed, True
        for descriptor in () if was_closed else (self._reader, self._writer):
            with contextlib.suppress(OSError):
                os.close(descriptor)


class StopRequest:
    """A request to stop ``run_worker()`` or ``run_once()`` from another thread.

    Call it once to let running jobs end, twice to stop at once. Call ``close()`` when the worker has ended, or use a
    ``with`` block: it holds two file descriptors.
    """

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = WorkerStop()

    def __call__(self, reason: str = "stop") -> None:
        """Request a stop, from any thread or signal handler; ``reason`` is for the log."""
        self._state(reason)

    @property
    def is_made(self) -> bool:
        """Has a stop been requested?"""
        return self._state.is_made

    def close(self) -> None:
        """Close the file descriptors, after the worker has ended."""
        self._state.close()

    def __enter__(self) -> StopRequest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def state_of(request: StopRequest) -> WorkerStop:
    """Return the state of a request, which the worker reads."""
    return request._state
