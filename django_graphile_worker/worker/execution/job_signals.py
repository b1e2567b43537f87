"""Sends the signals about runs, on the thread that runs the job."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django_graphile_worker import signals
from django_graphile_worker.logs import success_lines
from django_graphile_worker.logs.lines import JobFacts
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.django_connections import lifecycle
from django_graphile_worker.worker.execution.job_run import JobRun

logger = logging.getLogger("django_graphile_worker.worker")


class JobSignals:
    """The signals about the runs of one worker."""

    def __init__(self, sender: type[Any], about: Mapping[str, str]) -> None:
        self._sender = sender
        self._about = about
        self._generation = fork_guard.generation

    def send(self, signal: signals.Event, run: JobRun, **arguments: Any) -> None:
        """Send a signal about a run. What its receivers raise or leave behind does not concern the job."""
        if not signal.is_heard(**arguments):
            return
        try:
            # The worker's own log reads less of a job than there is to build.
            job = _facts(run) if signal.has_only_conditional_receiver else run.job
            about = {"worker_id": run.claim.worker_id, **self._about, "job": job}
            signal.send_robust(sender=self._sender, **about, **arguments)
        except BaseException:  # send_robust lets SystemExit pass
            logger.exception("A receiver tried to end the worker.")
        fork_guard.end_child(self._generation)
        # What receivers left on the connections of this thread is cleaned up, and does not count against the job.
        lifecycle.end()

    def is_logged_directly(self, run: JobRun, duration: float) -> bool:
        """Write the line of a success without a signal, if nothing but the worker's own log would receive it.

        No code of the site runs then, so nothing has to be cleaned up after it.
        """
        try:
            return signals.job_succeeded.has_only_conditional_receiver and success_lines.write(
                run.identifier, run.claim, duration, self._about
            )
        except BaseException:  # a stream that the site has replaced may raise anything
            logger.exception("The line of a job could not be written.")
            return True


def _facts(run: JobRun) -> JobFacts:
    claim = run.claim
    return JobFacts(claim.id, run.identifier, claim.queue_name, claim.attempts, claim.max_attempts)
