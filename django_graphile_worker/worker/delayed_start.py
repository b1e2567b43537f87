"""Starts a worker whose database may not answer yet, while the other workers of the process run."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from django.db import connections

from django_graphile_worker.worker.service import Service, Trouble


class DelayedStart(Service):
    """The service that tries to start a worker until its database answers, and then ends."""

    name = "start"

    def __init__(self, *, start_worker: Callable[[], None], give_up: Callable[[], object], on_trouble: Trouble) -> None:
        super().__init__(on_trouble=on_trouble)
        self._start_worker = start_worker
        # Called at the end if the worker has not started.
        self._give_up = give_up
        self._deciding = threading.Lock()
        # Set when the worker has started: from then on the runner's caller shuts the worker down, not this service.
        self.has_begun = False
        self.has_tried = threading.Event()

    def step(self) -> float:
        self._start_worker()
        with self._deciding:
            self.has_begun = not self.is_stopping
        self.stop()
        return math.inf

    def attempt(self) -> float:
        delay = super().attempt()
        self.has_tried.set()
        return delay

    def cancel(self) -> bool:
        """Stop trying; return True if the worker has started."""
        with self._deciding:
            self.stop()
            return self.has_begun

    def close(self) -> None:
        try:
            if not self.has_begun:
                self._give_up()
        finally:
            # Receivers of the signals about the trouble run on this thread, and may have opened connections.
            connections.close_all()
