"""Remembers schedules that could not be fired, and when each is tried again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from django_graphile_worker.sql.schedules.firing import DueSchedule

# Seconds until a schedule that failed is tried again, unless it is changed.
RETRY_AFTER = 30.0
# Seconds until a schedule is tried again whose job needs a row that another session has locked. They double.
FIRST_LOCKED_WAIT = 0.4


class _Refusal(NamedTuple):
    revision: int
    retry_at: float
    wait: float


class Refusals:
    """The schedules that failed, by id."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refusals: dict[int, _Refusal] = {}

    def __contains__(self, schedule_id: int) -> bool:
        return schedule_id in self._refusals

    def note_failure(self, due: DueSchedule) -> bool:
        """Note that a schedule failed; return whether that is news."""
        known = self._refusals.get(due.id)
        self._note(due, RETRY_AFTER)
        return known is None or known.revision != due.revision or known.wait < RETRY_AFTER

    def note_lock(self, due: DueSchedule) -> None:
        """Note that a row which the job of a schedule needs is locked."""
        known = self._refusals.get(due.id)
        self._note(due, FIRST_LOCKED_WAIT if known is None else min(known.wait * 2, RETRY_AFTER / 2))

    def forget(self, due: DueSchedule) -> None:
        """Forget what was noted: the schedule was fired."""
        self._refusals.pop(due.id, None)

    def left_out(self) -> dict[int, int]:
        """Return the revisions of the schedules, by id, that are not tried now."""
        now = self._clock()
        return {id_: each.revision for id_, each in self._refusals.items() if each.retry_at > now}

    def until_retry(self) -> float:
        """Return the seconds until the first of them is tried again."""
        now = self._clock()
        return min((each.retry_at - now for each in self._refusals.values() if each.retry_at > now), default=math.inf)

    def _note(self, due: DueSchedule, wait: float) -> None:
        self._refusals[due.id] = _Refusal(due.revision, self._clock() + wait, wait)
