"""Asking a worker to stop: what the caller has in hand, and what the worker sees of it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from types import FrameType, TracebackType

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.frozen import Frozen

# Why a worker stops whose schema was changed by a newer graphile-worker; the error says the rest.
REFUSED = "the schema is too new"


class Ending(Frozen):
    """How a worker's life ended."""

    # Does the database know the outcome of every job, if only that it was given back?
    was_released: bool
    # Did a job still run when the grace period was over?
    was_cut_off: bool


class StopState:
    """Was the worker asked to stop, and how often? Once to let jobs end, twice to stop at once.

    A signal handler may run between any two instructions, so it takes no lock
    and calls nobody: it counts. The byte that wakes the one who waits is written
    before, by Python itself: a signal that comes just as the main thread falls
    asleep, or to another thread, would have its handler called only after that.
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.signal_number: int | None = None
        # Why the worker cannot go on, if it is that what stops it.
        self.refusal: GraphileWorkerError | None = None
        # Called when the worker has started.
        self.on_started: Callable[[], None] = lambda: None
        # How the worker's life ended, once it is over.
        self.ending: Ending | None = None
        self._reader, self._writer = os.pipe()
        self._is_closed = False
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def __call__(self, reason: str = "stop") -> None:
        """Ask, from any thread or signal handler."""
        self.reasons.append(reason)
        with contextlib.suppress(OSError):
            os.write(self._writer, b".")

    def refuse(self, error: GraphileWorkerError) -> None:
        """Ask because the worker cannot go on."""
        self.refusal = error
        self(REFUSED)

    def be_woken_by_signals(self) -> int:
        """Have each signal write a byte; what did so until now is the answer."""
        return signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        name = signal.Signals(number).name
        self(name)
        if number == signal.SIGQUIT:
            # At once, as if it had come twice.
            self(name)

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
        """Give its two file descriptors back, once the worker is over. Calling it again changes nothing."""
        was_closed, self._is_closed = self._is_closed, True
        for descriptor in () if was_closed else (self._reader, self._writer):
            with contextlib.suppress(OSError):
                os.close(descriptor)


class StopRequest:
    """Stops ``run_worker()`` or ``run_once()`` from another thread.

    Call it once to let running jobs end, twice to stop at once. ``close()`` it, or use it in a ``with``, when the
    worker is over: it holds two file descriptors.
    """

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = StopState()

    def __call__(self, reason: str = "stop") -> None:
        """Ask the worker to stop, from any thread or signal handler; ``reason`` is for the log."""
        self._state(reason)

    @property
    def is_made(self) -> bool:
        """Was the worker asked to stop?"""
        return self._state.is_made

    def close(self) -> None:
        """Close the file descriptors, once the worker is over."""
        self._state.close()

    def __enter__(self) -> StopRequest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def state_of(request: StopRequest) -> StopState:
    """What the worker sees of a request."""
    return request._state
