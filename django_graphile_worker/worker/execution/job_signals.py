"""Sends the signals about runs, on the thread that runs the job."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django_graphile_worker import signals
from django_graphile_worker.logs import success_lines
from django_graphile_worker.logs.lines import JobFacts, log_exception
from django_graphile_worker.worker import django_connections, fork_guard
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
        if signal.is_heard(**arguments):
            self._deliver(signal, run, **arguments)

    def send_success(self, run: JobRun, *, duration: float, log_success: bool) -> None:
        """Send ``job_succeeded``, unless nothing but the worker's own log receives it, which then writes its line.

        No code of the site runs in this case, so nothing has to be cleaned up after it.
        """
        signal = signals.job_succeeded
        if signal.is_heard(log_success=log_success) and not self._is_logged_directly(run, duration):
            self._deliver(signal, run, duration=duration, log_success=log_success)

    def _deliver(self, signal: signals.Event, run: JobRun, **arguments: Any) -> None:
        try:
            # The worker's own log reads less of a job than there is to build.
            job = _facts(run) if signal.has_only_conditional_receiver else run.job
            about = {"worker_id": run.claim.worker_id, **self._about, "job": job}
            signal.send_robust(sender=self._sender, **about, **arguments)
        except BaseException as error:  # send_robust lets SystemExit pass
            log_exception(logger, logging.ERROR, "A receiver tried to end the worker.", error=error)
        fork_guard.end_child(self._generation)
        # What receivers left on the connections of this thread is cleaned up, and does not count against the job.
        django_connections.end()

    def _is_logged_directly(self, run: JobRun, duration: float) -> bool:
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
