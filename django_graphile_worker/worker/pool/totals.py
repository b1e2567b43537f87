"""The totals of a pool: how many jobs were submitted, removed and finished, and how long they took."""

from __future__ import annotations

from collections.abc import Sequence

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.work_units import WorkUnit, size_of

# Seconds: a longer job counts as long as this for the typical duration of jobs.
LONGEST_TYPICAL = 0.002


class PoolTotals:
    """Counts of jobs, not of work units: a work unit that moves from the line to a slot is for a moment in neither.

    The counts that change with every job are lists with one number for each thread: only that thread writes its
    number, so no lock is needed.
    """

    def __init__(self, threads: int) -> None:
        self._submitted = 0
        self._removed = 0
        # The same counts as sizes of payloads, in characters, to know the size of the jobs that have not begun.
        self._submitted_size = 0
        self._removed_size = 0
        self.begun_size = [0] * threads
        self.finished = [0] * threads
        self.busy_seconds = [0.0] * threads
        # How long the threads were busy with jobs, with the receivers of signals, and without most of the time of jobs
        # that take long or had to wait for other threads.
        self.typical_seconds = [0.0] * threads

    def submit(self, units: Sequence[Claim | WorkUnit]) -> None:
        claims = [unit for unit in units if type(unit) is Claim]
        self._submitted += len(claims)
        self._submitted_size += size_of(claims)
        if len(claims) < len(units):
            for unit in units:
                if isinstance(unit, WorkUnit):
                    self.submit_one(unit)

    def submit_one(self, unit: WorkUnit) -> None:
        self._submitted += len(unit.claims)
        self._submitted_size += unit.size

    def remove(self, units: Sequence[WorkUnit]) -> None:
        self._removed += sum(len(unit.claims) for unit in units)
        self._removed_size += sum(unit.size for unit in units)

    @property
    def waiting_size(self) -> int:
        """The size of the payloads of jobs that are claimed and have not begun, in characters."""
        return self._submitted_size - self._removed_size - sum(self.begun_size)

    @property
    def have_all_ended(self) -> bool:
        ended = self._removed + sum(self.finished)
        return self._submitted == ended

    def measured(self) -> tuple[int, float]:
        """Return the number of jobs that have finished so far, and the seconds that they took together."""
        return sum(self.finished), sum(self.busy_seconds)
