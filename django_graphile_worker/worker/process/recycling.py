"""The recycling of processes: ``--max-jobs``, ``--max-memory`` and ``--max-age``.

A process that comes near one of its limits asks its supervisor for another process, and works on until that process is
ready to take its place. At the limit it begins no more jobs, ready or not.
"""

from __future__ import annotations

import logging
import math
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from django_graphile_worker.conf import Settings
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.text import readable_duration
from django_graphile_worker.worker.outcomes import Outcome
from django_graphile_worker.worker.process.supervisor import RECYCLES, send
from django_graphile_worker.worker.release.batches import has_begun
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.service import Service
from django_graphile_worker.worker.stop_request import WorkerStop

# A process asks for another one at a random share between these of its limit: processes that started together are not
# replaced together, and the other one has the rest of the time to start.
EARLIEST, LATEST = 0.7, 0.9
# If the rest would last for fewer starts than this, it asks earlier: but not before it has used up this share.
STARTS, EARLIEST_OF_ALL = 3.0, 0.5
# Seconds between two looks while no job ends, and between two looks at the memory while jobs end.
INTERVAL, MEASURING_INTERVAL = 1.0, 0.01
MEGABYTE = 1_048_576
# In pages: the size of the process, and the part of it that is in memory.
_STATM = Path("/proc/self/statm")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")

logger = logging.getLogger("django_graphile_worker.worker")


def memory() -> float:
    """Return the megabytes of memory that this process uses; where the system does not tell, the most it has used."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_SIZE / MEGABYTE
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (MEGABYTE if sys.platform == "darwin" else 1024)


class Recycling(Service):
    """A service that watches the limits of this process."""

    name = "recycling"

    def __init__(
        self,
        settings: Settings,
        runners: Sequence[Runner],
        request: WorkerStop,
        supervisor: Connection,
        spawned_at: float,
    ) -> None:
        super().__init__(on_trouble=self._log_trouble)
        self._settings = settings
        self._workers = [runner.worker for runner in runners]
        self._request = request
        self._supervisor = supervisor
        self._counting = threading.Lock()
        self._jobs = 0
        self._measured_at = 0.0
        self._began_at = time.monotonic()
        # The seconds that this process took to start, until it runs jobs. Another will take as long.
        self._start_seconds = self._began_at - spawned_at
        # The memory of a process without jobs does not count: what grows is what the limit is for.
        self._memory = self._first_memory = memory()
        if settings.max_memory is not None and self._first_memory >= settings.max_memory:
            raise GraphileWorkerError(
                f"MAX_MEMORY: a process needs {self._first_memory:.0f} MB before its first job, "
                f"got {settings.max_memory}. Set it to at least twice as much."
            )
        self._asks_at = random.uniform(EARLIEST, LATEST)
        self._has_asked = self._has_reached = False

    def step(self) -> float:
        with self._counting:
            self._check()
        return INTERVAL

    def job_ended(self, outcome: Outcome) -> None:
        """Count a job that this process has run, on the thread that ran it."""
        with self._counting:
            self._jobs += has_begun(outcome)
            self._check()

    def _check(self) -> None:
        share, why = max(self._shares())
        if not self._has_asked and (share >= self._asks_at or self._is_fast(share)):
            self._has_asked = True
            send(self._supervisor, (RECYCLES, why))
        if share >= 1.0 and not self._has_reached:
            self._has_reached = True
            for worker in self._workers:
                worker.limit_reached()
            self._request.retire()

    def _is_fast(self, share: float) -> bool:
        """Return True if this process reaches its limit soon after another has started, or before."""
        rest = (time.monotonic() - self._began_at) * (1.0 - share) / share if share else math.inf
        return share >= EARLIEST_OF_ALL and rest < STARTS * self._start_seconds

    def _shares(self) -> Iterator[tuple[float, str]]:
        """Yield for each limit which share of it is used up, and that in words."""
        limits = self._settings
        if limits.max_jobs is not None:
            yield self._jobs / limits.max_jobs, f"has run {self._jobs:,} of at most {limits.max_jobs:,} jobs"
        if limits.max_memory is not None:
            if time.monotonic() - self._measured_at > MEASURING_INTERVAL:
                self._memory, self._measured_at = memory(), time.monotonic()
            share = (self._memory - self._first_memory) / (limits.max_memory - self._first_memory)
            yield share, f"uses {self._memory:,.0f} of at most {limits.max_memory:,} MB"
        if limits.max_age is not None:
            age = time.monotonic() - self._began_at
            yield (
                age / limits.max_age,
                f"has run for {readable_duration(age)} of at most {readable_duration(limits.max_age)}",
            )

    def _log_trouble(self, action: str, error: BaseException, retry_in: float) -> None:
        logger.warning("the limits of this process cannot be checked: %s", error)


@contextmanager
def recycled(
    settings: Settings, runners: Sequence[Runner], request: WorkerStop, supervisor: Connection, spawned_at: float
) -> Iterator[None]:
    """Watch the limits of this process inside the block, if it has any."""
    if not settings.recycles:
        yield
        return
    recycling = Recycling(settings, runners, request, supervisor, spawned_at)
    for runner in runners:
        runner.worker.on_job_ended = recycling.job_ended
    recycling.start()
    try:
        yield
    finally:
        recycling.stop()
