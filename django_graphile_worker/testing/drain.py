"""``run_jobs()``: runs what is due, inside the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from django_graphile_worker.api.connection import async_variant
from django_graphile_worker.exceptions import GraphileWorkerError, InvalidTypeError
from django_graphile_worker.logs.errors import OWN_FOLDERS
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.testing import simulated_clock
from django_graphile_worker.testing.in_process_worker import InProcessWorker, RanJob, running_job
from django_graphile_worker.testing.timelines import ClockTime, PresentTime, Timeline
from django_graphile_worker.worker import django_connections

OnError = Literal["raise", "record"]

MAX_JOBS = 1_000
# Exceptions that fail a job in a worker. Others, such as KeyboardInterrupt and the outcomes of pytest, end the test.
OF_JOBS = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, BaseExceptionGroup)


def run_jobs(
    *,
    on_error: OnError = "raise",
    limit: int = MAX_JOBS,
    cron: bool = True,
    using: str | None = None,
    installation: str | None = None,
) -> list[RanJob]:
    """Run the jobs that are due, and those that they add, in the order of a worker; return what ran.

    They run on the connection of the caller, inside its transaction if there is one. If a job fails, its exception
    is raised; with ``on_error="record"`` it is in the result, and the other jobs run. Under a ``clock()`` jobs,
    retries and, unless ``cron`` is False, recurring tasks run as if a worker had run all the time. ``limit`` is the
    largest number of jobs: it ends a test whose jobs never end.
    """
    __tracebackhide__ = True
    _check(on_error, limit)
    refuse_inside_a_job("run_jobs()")
    place = place_of(using, installation)
    clock = simulated_clock.current
    timeline: Timeline = PresentTime() if clock is None else ClockTime(clock, place, cron=cron)
    return Drain(place, timeline, on_error=on_error, limit=limit).run()


arun_jobs = async_variant(run_jobs)


def refuse_inside_a_job(caller: str) -> None:
    """Raise GraphileWorkerError if a job calls what only a test may call."""
    job = running_job.get()
    if job is None and django_connections.this_thread.watched is not None:
        job = "a worker"
    if job is not None:
        raise GraphileWorkerError(
            f"{caller} was called inside a job ({job}). The job would wait for others, which a worker may run at any "
            "time: return, and let the test call it."
        )


def _check(on_error: Any, limit: Any) -> None:
    if on_error not in ("raise", "record"):
        raise InvalidTypeError(f"on_error: expected 'raise' or 'record', got {on_error!r}.")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidTypeError(f"limit: expected a number of jobs of 1 or more, got {limit!r}.")


class Drain:
    """One call of ``run_jobs()``."""

    # What the error of a job says about itself.
    way_out = "run_jobs(on_error='record') returns it instead."

    def __init__(self, place: Place, timeline: Timeline, *, on_error: OnError, limit: int) -> None:
        self._timeline = timeline
        self._worker = InProcessWorker(place, timeline.now)
        self._on_error = on_error
        self._limit = limit
        self._ran: list[RanJob] = []

    def run(self) -> list[RanJob]:
        __tracebackhide__ = True
        with _unprinted_log_of_jobs(), self._worker.working():
            try:
                self._timeline.begin(self._worker.caller_database, self._worker.reports)
                self._run_all()
            finally:
                self._timeline.end()
        return self._ran

    def _run_all(self) -> None:
        __tracebackhide__ = True
        while True:
            claimed = self._worker.claim()
            if claimed.claims:
                self._run_one(claimed.claims[0])
            elif not self._timeline.move_on(claimed.seconds_until_next):
                return

    def _run_one(self, claim: Claim) -> None:
        __tracebackhide__ = True
        if len(self._ran) >= self._limit:
            self._worker.return_job(claim)
            raise GraphileWorkerError(self._too_many())
        ran = self._worker.run(claim)
        self._ran.append(ran)
        if ran.error is not None and (self._is_raised(ran) or not isinstance(ran.error, OF_JOBS)):
            raise _explained(ran, self.way_out)

    def _is_raised(self, ran: RanJob) -> bool:
        """Return whether the error of a job that failed ends the call."""
        return self._on_error == "raise"

    def _too_many(self) -> str:
        last = ", ".join(dict.fromkeys(ran.task_identifier for ran in self._ran[-20:]))
        return (
            f"run_jobs() has run {self._limit} jobs, and there are more; the last were of {last}. If a job adds itself "
            f"again, the queue never becomes empty; under a clock() also recurring tasks run, unless cron=False. If so "
            f"many are meant, write run_jobs(limit={self._limit * 10})."
        )


@contextmanager
def _unprinted_log_of_jobs() -> Iterator[None]:
    """Keep Python from printing what no handler takes: a traceback for each attempt, which the test knows anyway."""
    logger, handler = logging.getLogger("django_graphile_worker.jobs"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _explained(ran: RanJob, way_out: str) -> BaseException:
    """Return the error of a job, with a note that names the job, and with a traceback that begins in the task."""
    error = ran.error
    assert error is not None
    note = (
        f"Raised by job {ran.job.id}, {ran.task_identifier}, attempt {ran.job.attempts} of {ran.job.max_attempts}. "
        f"{way_out}"
    )
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    begins = error.__traceback__
    while begins is not None and begins.tb_frame.f_code.co_filename.startswith(OWN_FOLDERS):
        begins = begins.tb_next
    return error.with_traceback(begins or error.__traceback__)
