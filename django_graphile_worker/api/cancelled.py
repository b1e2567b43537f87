"""Sends ``job_cancelled`` for jobs that a call of the API ended."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from django.db import transaction

from django_graphile_worker import signals
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.cancellations import CancelledJob


def send_cancelled(place: Place, jobs: Sequence[CancelledJob]) -> None:
    """Send the signal for each job when the transaction commits. The worker that stops a job sends it for that job."""
    if jobs and signals.job_cancelled.is_heard():
        transaction.on_commit(partial(_send, place, jobs), using=place.using, robust=True)


def _send(place: Place, jobs: Sequence[CancelledJob]) -> None:
    about = {"worker_id": "", "database": place.using, "installation": place.installation}
    for each in jobs:
        why = {"reason": each.reason, "cancelled_by": each.cancelled_by}
        signals.job_cancelled.send_robust(sender=CancelledJob, **about, job=each.job, duration=each.duration, **why)
