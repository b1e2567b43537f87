"""What every long-lived part of a worker is: one unit of work, again and again."""

from __future__ import annotations

import math
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from django_graphile_worker.worker import fork_guard

Trouble = Callable[[str, BaseException, float], None]

FIRST_RETRY = 0.1
LAST_RETRY = 5.0


class Service(ABC):
    """A thread around ``step()``.

    ``step()`` does one unit of work and returns the seconds until the next:
    zero for at once, infinity for "when woken". This class alone owns the
    thread, the wake-up and the back-off after errors; tests call ``step()``.
    """

    name = "service"

    def __init__(self, *, on_trouble: Trouble | None = None) -> None:
        self._on_trouble = on_trouble
        self._woken = threading.Event()
        self._hurried = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures = 0
        # Did somebody call for the step under way, or is it just time for it?
        self.was_called = True
        self._was_told = False
        # What went wrong in the last step, None when nothing did.
        self.trouble: BaseException | None = None

    @abstractmethod
    def step(self) -> float:
        """Do one unit of work; return the seconds until the next."""

    def close(self) -> None:  # noqa: B027 - most services have nothing to close
        """Called on the service's own thread when it ends."""

    def start(self) -> None:
        """Start the thread, once; a service that was stopped before never starts."""
        if self._thread is None and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._run, name=f"graphile-worker-{self.name}", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Have the next step now; a step under way is followed by another."""
        self._woken.set()

    def was_woken(self) -> bool:
        return self._woken.is_set()

    def forget_wake(self) -> None:
        self._woken.clear()

    def pause(self, delay: float) -> bool:
        """Wait for a wake-up, this long at most; is it a call even if nobody woke the service?"""
        if delay > 0:
            self._woken.wait(None if math.isinf(delay) else delay)
        return False

    def rest(self, delay: float) -> bool:
        """Wait for the next step; is somebody known to have called for it?"""
        if self._stopping.is_set():
            # The stop may have been taken for a call: then nothing would end the pause.
            return False
        if self.trouble is None:
            return self.pause(delay)
        # However often somebody calls meanwhile: each call would be one more failure.
        self._hurried.wait(delay)
        self._hurried.clear()
        return True

    def hurry(self) -> None:
        """Try again now, though it went wrong a moment ago."""
        self._hurried.set()
        self.wake()

    def stop(self) -> None:
        """Ask the service to end after the step under way. Safe twice, and before the start."""
        self._stopping.set()
        self._hurried.set()
        self._woken.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; True when the service is over."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def has_died(self) -> bool:
        """Has the thread ended though nobody asked it to?"""
        return self._thread is not None and not self._thread.is_alive() and not self.is_stopping

    def _run(self) -> None:
        born_in = fork_guard.generation
        try:
            while not self._stopping.is_set():
                self._was_told = self.rest(self.round())
                # A step may have called code of the site.
                fork_guard.end_child(born_in)
        finally:
            self.close()

    def round(self) -> float:
        """One step, which may want to know whether somebody called for it."""
        self.was_called = self._was_told
        # A call that comes between these lines is for the next step.
        if self._woken.is_set():
            self._woken.clear()
            self.was_called = True
        return self.attempt()

    def attempt(self) -> float:
        """One step; an error is told, and waited after."""
        try:
            delay = self.step()
        except BaseException as error:  # a receiver or a callable of the site may even raise SystemExit
            self.trouble = error
            delay = self._retry_delay()
            if self._on_trouble is not None:
                self._on_trouble(self.name, error, delay)
            return delay
        self._failures = 0
        self.trouble = None
        return delay

    def _retry_delay(self) -> float:
        """Back off, with jitter: a fleet must not come back to its database as one."""
        ceiling = min(LAST_RETRY, FIRST_RETRY * 2.0**self._failures)
        self._failures = min(self._failures + 1, 20)
        return ceiling * random.uniform(0.5, 1.0)


def jittered(seconds: float) -> float:
    """A duration a little shorter each time, so that workers started together drift apart."""
    return seconds * random.uniform(0.85, 1.0)
