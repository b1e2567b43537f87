"""A process that is past the deadline of one of its runs, and does not react: found and ended by the supervisor."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.worker.overdue.run_records import STACKS_SIGNAL, RunRecord, RunRecordsFile

# Seconds that the process has to write its stacks.
STACKS_TIME = 0.2


class Overdue(Frozen):
    """The runs that were past their deadline when the supervisor ended their process, for the process that follows."""

    runs: tuple[RunRecord, ...]
    # The ids of the workers of the process, in their order.
    worker_ids: tuple[str, ...]
    # The stacks of all threads.
    stacks: str


class OverdueWatch:
    """Watches one process. It ends the process if a run stays past its deadline although the process could stop it."""

    def __init__(self, grace: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.records = RunRecordsFile()
        # Seconds that the process itself needs to stop a run.
        self._grace = grace
        self._clock = clock
        # By run: when it was first seen past its deadline. A process that was suspended gets its time after that.
        self._seen: dict[RunRecord, float] = {}

    def find(self) -> list[RunRecord]:
        """Return the runs that the process fails to stop."""
        now = self._clock()
        past = self.records.past(now - self._grace)
        self._seen = {record: self._seen.get(record, now) for record in past}
        return [record for record, since in self._seen.items() if now - since >= self._grace]

    def end(self, process: SpawnProcess, runs: list[RunRecord]) -> Overdue:
        """Have the process write its stacks, and kill it."""
        stacks = self._stacks(process)
        process.kill()
        process.join()
        return Overdue(runs=tuple(runs), worker_ids=tuple(self.records.worker_ids()), stacks=stacks)

    def close(self) -> None:
        self.records.close()

    def _stacks(self, process: SpawnProcess) -> str:
        if STACKS_SIGNAL is None or process.pid is None:
            return ""
        with contextlib.suppress(OSError):
            os.kill(process.pid, STACKS_SIGNAL)
            deadline, text = self._clock() + STACKS_TIME, ""
            # The process does not tell when it has written its stacks: wait until the text grows no more.
            while self._clock() < deadline:
                time.sleep(STACKS_TIME / 10)
                before, text = text, self.records.stacks()
                if text and text == before:
                    break
            return text
        return ""
