"""Builds the timeline of a job from its row and the admin's log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.models import LogEntry
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import audit, error_summary, formatting
from django_graphile_worker.admin.jobs.failure_times import FailureTime, failure_time
from django_graphile_worker.sql.inspection.job_detail import JobDetail
from django_graphile_worker.sql.inspection.job_search.criteria import State


@dataclass(frozen=True, slots=True)
class Event:
    """An event in the past or in the future."""

    label: str
    detail: str
    relative_time: Any
    exact_time: str
    css_class: str
    # The order of the timeline.
    time: datetime


def timeline(
    job: JobDetail, entries: list[LogEntry], now: datetime, recorded_failure: datetime | None = None
) -> list[Event]:
    """Return the events of a job in order: creation, attempts, changes by users, and the next attempt."""
    failure = failure_time(job, entries, now, recorded_failure)
    events = [
        *_past_events(job, failure, now),
        _current_event(job, failure, now),
        *(_log_event(entry, now) for entry in entries),
    ]
    return sorted(events, key=lambda event: event.time)


def _event(label: str, detail: str, at: datetime, css_class: str, now: datetime) -> Event:
    return Event(label, detail, formatting.relative_time(at, now), formatting.exact_time(at), css_class, at)


def _past_events(job: JobDetail, failure: FailureTime, now: datetime) -> Iterator[Event]:
    yield _event(_("Created"), "", job.created_at, "done", now)
    made = job.attempts - (1 if job.state is State.RUNNING else 0)
    # The attempts of a running job that is cancelled are used up, whatever number of them was made.
    if made <= 0 or job.state is State.FAILED or job.stop_reason is not None:
        return
    if job.last_error:
        label = ngettext("%(number)s attempt failed", "%(number)s attempts failed", made) % {"number": made}
        detail = _("estimated time of the last failure") if failure.is_estimate else _("time of the last failure")
        yield _failure_event(label, detail, failure, now)
    else:
        label = ngettext("%(number)s attempt made", "%(number)s attempts made", made) % {"number": made}
        yield _event(label, "", failure.at, "done", now)


def _failure_event(label: str, detail: str, failure: FailureTime, now: datetime) -> Event:
    if failure.changed_by:
        detail = _("changed by %(user)s since; the time of the failure is not recorded") % {"user": failure.changed_by}
    return Event(label, detail, failure.shown(now), formatting.exact_time(failure.at), "failed", failure.at)


def _current_event(job: JobDetail, failure: FailureTime, now: datetime) -> Event:
    if job.state is State.RUNNING:
        attempt = "" if job.stop_reason is not None else f"{_attempt(job.attempts, job)}, "
        detail = f"{attempt}{job.locked_by}"
        return _event(_("Running"), detail, job.locked_at, "running", now)
    if job.state is State.FAILED:
        return _failure_event(_("Failed"), _why_no_more(job), failure, now)
    if job.state is State.LIMITED:
        label = _("Waiting for its turn") if job.limit_key is None else _("Waiting for a limit")
        return _event(label, _attempt(job.attempts + 1, job), job.run_at, "limited", now)
    label = _("Due") if job.is_due else _("Next attempt") if job.attempts else _("First attempt")
    return _event(label, _attempt(job.attempts + 1, job), job.run_at, "ready" if job.is_due else "scheduled", now)


def _attempt(number: int, job: JobDetail) -> str:
    return _("Attempt %(number)s of %(most)s") % {"number": number, "most": job.max_attempts}


def _why_no_more(job: JobDetail) -> str:
    """Return why a job is not retried. Giving up sets attempts to max_attempts, however often the job ran."""
    if job.attempts_made < job.attempts:
        values = {"number": job.attempts_made, "most": job.max_attempts}
        return _("given up after attempt %(number)s of %(most)s") % values
    if error_summary.was_given_up(job.last_error):
        return _("the task gave up, so the job is not retried")
    return _("no attempts left (%(number)s of %(most)s)") % {"number": job.attempts, "most": job.max_attempts}


def _log_event(entry: LogEntry, now: datetime) -> Event:
    # The other labels of the timeline have no full stop.
    return _event(audit.message_of(entry).removesuffix("."), str(entry.user), entry.action_time, "user", now)
