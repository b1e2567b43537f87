"""How long jobs take here, lately, and so how many to have in hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.pool import SlotPool

# How far ahead to claim: what the slots finish in this time. Longer jobs are
# never claimed ahead, they would only be kept from other workers.
HORIZON = 0.05
# A queue is taken for about this long at a time, then others have their turn.
STRETCH_HORIZON = 0.1
# The payloads of claimed jobs that have not begun have at most so many bytes together.
BYTES_AHEAD = 16 * 1024 * 1024
# A job of this length is worth another thread; shorter ones only get into each other's way.
WORTH_A_SLOT = 0.0001


class Prefetch:
    """Measured by the slots, asked by the fetcher."""

    def __init__(self, slots: SlotPool) -> None:
        self._slots = slots
        self._seconds: float | None = None
        self._size = 1
        self._finished = 0
        self._busy = 0.0

    def ahead(self, limit: int) -> int:
        """How many jobs to claim beyond the free slots."""
        seconds = self._measure()
        if seconds is None or seconds > HORIZON:
            return 0
        room = min(limit, BYTES_AHEAD // self._size)
        return min(room, int(self._slots.concurrency * HORIZON / max(seconds, 1e-6)))

    def callers(self) -> int:
        """How many slots to call for new jobs: all, unless jobs are so short that a few keep up."""
        seconds = self._measure()
        return self._slots.concurrency if seconds is None else math.ceil(seconds / WORTH_A_SLOT) + 1

    def stretch(self, limit: int) -> int:
        """How many jobs of one queue to claim at once."""
        seconds = self._measure()
        if seconds is None:
            return 1
        return max(1, min(limit, int(STRETCH_HORIZON / max(seconds, 1e-6))))

    def bytes_left(self) -> int:
        """How much payload the next claim may bring beyond the free slots."""
        return max(BYTES_AHEAD - self._slots.waiting_size, 0)

    def fitting(self) -> int:
        """How many jobs of the last claim's average size fit into that."""
        return self.bytes_left() // self._size

    def weigh(self, claims: Sequence[Claim]) -> None:
        """Large payloads are not worth holding in memory by the thousand."""
        self._size = max(sum(len(claim.payload_text) for claim in claims) // len(claims), 1)

    def slow_down(self) -> None:
        """Claimed jobs did not move: the recent past is no guide."""
        self._seconds = None

    def _measure(self) -> float | None:
        finished, busy = self._slots.totals()
        if finished > self._finished:
            recent = (busy - self._busy) / (finished - self._finished)
            self._seconds = recent if self._seconds is None else (self._seconds + recent) / 2
            self._finished, self._busy = finished, busy
        return self._seconds
