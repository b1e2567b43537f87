"""Times for sites with ``USE_TZ = False``: naive, in the site's own zone, as Django reads them from its connections.

The worker's own connections know nothing of that setting.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from django.utils import timezone

from django_graphile_worker.jobs import Job


def naive(moment: datetime) -> datetime:
    """The moment as a clock on the site's wall shows it; a naive one is that already."""
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(timezone.get_default_timezone()).replace(tzinfo=None)
    except OverflowError:
        # The first or last moment that Python can hold, in a zone where it is a day beyond.
        return moment.replace(tzinfo=None)


def with_naive_times(job: Job) -> Job:
    return replace(
        job,
        run_at=naive(job.run_at),
        created_at=naive(job.created_at),
        updated_at=naive(job.updated_at),
        locked_at=None if job.locked_at is None else naive(job.locked_at),
    )
