"""The start of one worker among several: its database may be away, and the others shall not wait for it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from django.db import connections

from django_graphile_worker.worker.service import Service, Trouble


class DelayedStart(Service):
    """Starts a worker, again and again until its database answers; then it is over."""

    name = "start"

    def __init__(self, *, begin: Callable[[], None], give_up: Callable[[], object], on_trouble: Trouble) -> None:
        super().__init__(on_trouble=on_trouble)
        self._begin = begin
        self._give_up = give_up
        self._deciding = threading.Lock()
        # Has the worker begun? Then ending it is the business of whoever stops the others.
        self.has_begun = False
        self.has_tried = threading.Event()

    def step(self) -> float:
        self._begin()
        with self._deciding:
            self.has_begun = not self.is_stopping
        self.stop()
        return math.inf

    def attempt(self) -> float:
        delay = super().attempt()
        self.has_tried.set()
        return delay

    def end(self) -> bool:
        """Try no more; has the worker begun?"""
        with self._deciding:
            self.stop()
            return self.has_begun

    def close(self) -> None:
        try:
            if not self.has_begun:
                self._give_up()
        finally:
            # Receivers that were told of the trouble may have used some.
            connections.close_all()
