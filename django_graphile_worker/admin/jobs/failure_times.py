"""When a job failed, as far as that is known.

A worker of this package stores the time of a failure in ``updated_at``. Every later change of the job, such as another
priority, stores its own time there. The failure is exactly known from the history, from the kept result, or if the
next attempt is due at ``updated_at`` plus the usual back-off, which only a failure writes. Otherwise the admin's log
says whether ``updated_at`` is the time of a change: then the job failed before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Q
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.jobs import usual_backoff
from django_graphile_worker.models import Job

# The clocks of the site and of the database may differ, and an entry is written after the change.
CLOCK_TOLERANCE = timedelta(seconds=5)
# An action on many jobs has one entry, which is as old as its first step.
LONGEST_ACTION = timedelta(seconds=15)
BACK_OFF_TOLERANCE = timedelta(milliseconds=50)


class FailedJob(Protocol):
    """The columns of a job that tell when it failed."""

    @property
    def id(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def run_at(self) -> Any: ...
    @property
    def created_at(self) -> Any: ...
    @property
    def updated_at(self) -> Any: ...
    @property
    def locked_at(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class FailureTime:
    """The time of the last failure: exact, an estimate, or (with `changed_by`) a time before which it was."""

    at: datetime
    is_estimate: bool = False
    # The user that changed the job after it had failed.
    changed_by: str = ""

    def shown(self, now: datetime | None = None) -> Any:
        """Return the distance of the time from now, as a page shows it."""
        distance = formatting.relative_time(self.at, now)
        return format_html(_("earlier than {}"), distance) if self.changed_by else distance


def failure_time(
    job: FailedJob, entries: Iterable[LogEntry], now: datetime, recorded: datetime | None = None
) -> FailureTime:
    """Return when the last attempt failed; ``recorded`` is the time that the history or the result has."""
    if recorded is not None:
        return FailureTime(recorded)
    if job.updated_at <= job.created_at or job.locked_at is not None:
        return FailureTime(_estimate(job, now), is_estimate=True)
    if not is_exact(job) and (change := _last_change(job, entries)):
        return FailureTime(job.updated_at, changed_by=str(change.user))
    return FailureTime(job.updated_at)


def is_exact(job: FailedJob) -> bool:
    """Return whether a failure wrote ``updated_at``: the next attempt is due after the usual back-off."""
    due = _plus(job.updated_at, usual_backoff(job.attempts))
    return due is not None and abs(due - job.run_at) <= BACK_OFF_TOLERANCE


def entries_about(jobs: Sequence[FailedJob]) -> dict[int, list[LogEntry]]:
    """Return the entries of the admin's log that may have changed these jobs after they failed."""
    asked = {str(job.id): job for job in jobs if not is_exact(job)}
    if not asked:
        return {}
    content_type = ContentType.objects.get_for_model(Job, for_concrete_model=False)
    oldest = min(job.updated_at for job in asked.values())
    found = LogEntry.objects.filter(
        Q(object_id__in=list(asked)) | Q(object_id=""),
        content_type=content_type,
        action_time__gte=_plus(oldest, -LONGEST_ACTION.total_seconds()) or oldest,
    ).select_related("user")
    entries = list(found.order_by("-action_time")[: 20 * len(asked)])
    return {job.id: [entry for entry in entries if entry.object_id in ("", key)] for key, job in asked.items()}


def _last_change(job: FailedJob, entries: Iterable[LogEntry]) -> LogEntry | None:
    """Return the entry of the change that wrote ``updated_at``."""
    for entry in entries:
        if entry.action_flag == ADDITION:
            continue
        after = entry.action_time - job.updated_at
        earliest = -CLOCK_TOLERANCE if entry.object_id else -LONGEST_ACTION
        if earliest <= after <= CLOCK_TOLERANCE or (entry.object_id and after > CLOCK_TOLERANCE):
            return entry
    return None


def _estimate(job: FailedJob, now: datetime) -> datetime:
    """Return the time of the next attempt minus the usual back-off: Node's worker does not record the failure."""
    guess = _plus(job.run_at, -usual_backoff(job.attempts)) or datetime.min.replace(tzinfo=UTC)
    estimate: datetime = max(job.created_at, min(now, max(guess, min(job.updated_at, now))))
    return estimate


def _plus(moment: datetime, seconds: float) -> datetime | None:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return None
