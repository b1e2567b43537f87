"""The base classes of every long-lived part of a worker, which repeats one unit of work.

``Loop`` is the repetition. ``Service`` is a loop on a thread of its own, and the base class of nearly every part. The
fetcher is a loop that the threads of the pool run in turns (``fetching.fetcher``).
"""

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


class Loop(ABC):
    """The repetition of ``step()``.

    ``step()`` does one unit of work and returns the seconds until the next:
    zero for at once, infinity for "when woken". This class alone owns the
    wake-up, the stop and the back-off after errors; tests call ``step()``.
    """

    name = "loop"

    def __init__(self, *, on_trouble: Trouble) -> None:
        # Called with the name of the loop, the error of a step, and the seconds until the next try.
        self._on_trouble = on_trouble
        self._woken = threading.Event()
        self._hurried = threading.Event()
        self._stopping = threading.Event()
        self._failures = 0
        # Whether something called for the step under way. False if the step began because its delay was over.
        self.was_called = True
        self._rest_was_called = False
        # The error of the last step, None if the step succeeded.
        self.trouble: BaseException | None = None

    @abstractmethod
    def step(self) -> float:
        """Do one unit of work; return the seconds until the next."""

    def close(self) -> None:  # noqa: B027 - most loops have nothing to close
        """Free what the loop holds. Called when it ends, on the thread that ran its last step."""

    def wake(self) -> None:
        """Start the next step now; if a step is under way, start another after it."""
        self._woken.set()

    def was_woken(self) -> bool:
        return self._woken.is_set()

    def forget_wake(self) -> None:
        self._woken.clear()

    def pause(self, delay: float) -> bool:
        """Wait for ``wake()``, at most for the delay; return True if something else called for the next step."""
        if delay > 0:
            self._woken.wait(None if math.isinf(delay) else delay)
        return False

    def rest(self, delay: float) -> bool:
        """Wait for the next step; return True if something other than ``wake()`` called for it."""
        if self._stopping.is_set():
            # The last round may have cleared the wake-up that stop() sent: then nothing would end the pause.
            return False
        if self.trouble is None:
            return self.pause(delay)
        # Wake-ups do not shorten this wait, however many arrive: each early step would be one more failure.
        self._hurried.wait(delay)
        self._hurried.clear()
        return True

    def hurry(self) -> None:
        """Try again now, though the last step failed a moment ago."""
        self._hurried.set()
        self.wake()

    def stop(self) -> None:
        """Have the loop end after the step under way. May be called twice, and before the start."""
        self._stopping.set()
        self._hurried.set()
        self.wake()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def round(self) -> float:
        """Attempt one step, which reads from ``was_called`` whether something called for it."""
        self.was_called = self._rest_was_called
        # A wake-up that arrives between these lines is for the next step.
        if self._woken.is_set():
            self._woken.clear()
            self.was_called = True
        return self.attempt()

    def attempt(self) -> float:
        """Do one step; report an error, and return how long to wait after it."""
        try:
            delay = self.step()
        except BaseException as error:  # a receiver or a callable of the site may even raise SystemExit
            self.trouble = error
            delay = self._retry_delay()
            self._on_trouble(self.name, error, delay)
            return delay
        self._failures = 0
        self.trouble = None
        return delay

    def _retry_delay(self) -> float:
        """Return a growing delay with jitter: a fleet of workers must not reconnect to its database all at once."""
        ceiling = min(LAST_RETRY, FIRST_RETRY * 2.0**self._failures)
        self._failures = min(self._failures + 1, 20)
        return ceiling * random.uniform(0.5, 1.0)


class Service(Loop):
    """A loop on a thread of its own."""

    name = "service"

    def __init__(self, *, on_trouble: Trouble) -> None:
        super().__init__(on_trouble=on_trouble)
        # Several threads may start a service, and others stop it or look at it meanwhile.
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, *, after: float = 0.0) -> None:
        """Start the thread, once; a service that was stopped before never starts.

        The first step begins after this many seconds, or when something wakes the service.
        """
        with self._starting:
            if self._thread is None and not self._stopping.is_set():
                name = f"graphile-worker-{self.name}"
                self._thread = threading.Thread(target=self._main, args=(after,), name=name, daemon=True)
                self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; return True when the service is over."""
        with self._starting:
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout)
        return not thread.is_alive()

    @property
    def has_died(self) -> bool:
        """Has the thread ended without ``stop()``?"""
        with self._starting:
            thread = self._thread
        return thread is not None and not thread.is_alive() and not self.is_stopping

    def _main(self, after: float) -> None:
        born_in = fork_guard.generation
        try:
            self.pause(after)
            while not self._stopping.is_set():
                self._rest_was_called = self.rest(self.round())
                # A step may have called code of the site, which may have forked this process.
                fork_guard.end_child(born_in)
        finally:
            self.close()


def jittered(seconds: float) -> float:
    """Return a duration that is shorter by a random part, so that workers started together drift apart."""
    return seconds * random.uniform(0.85, 1.0)
