"""A job's life, as far as its row tells it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.admin.models import LogEntry
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import error_summary, formatting
from django_graphile_worker.sql.inspection.criteria import State
from django_graphile_worker.sql.inspection.job_detail import JobDetail


class Event(NamedTuple):
    """Something that happened, or will."""

    label: str
    detail: str
    at: Any
    exact: str
    css_class: str
    # For the order alone.
    moment: datetime


def timeline(job: JobDetail, entries: list[LogEntry], now: datetime) -> list[Event]:
    """Created, due, tried, changed by people, and what comes next."""
    events = [*_of_job(job, now), *(_of_entry(entry, now) for entry in entries)]
    return sorted(events, key=lambda event: event.moment)


def _event(label: str, detail: str, at: datetime, css_class: str, now: datetime) -> Event:
    return Event(label, detail, formatting.moment(at, now), formatting.exact(at), css_class, at)


def _of_job(job: JobDetail, now: datetime) -> Iterator[Event]:
    yield _event(_("Created"), "", job.created_at, "done", now)
    state = job.state
    failed = job.attempts - (1 if state is State.RUNNING else 0)
    if failed > 0 and job.last_error and state is not State.FAILED:
        label = ngettext("%(number)s attempt failed", "%(number)s attempts failed", failed) % {"number": failed}
        at, is_known = failed_at(job, now)
        yield _event(label, _("the last one then") if is_known else _("the last one about then"), at, "failed", now)
    elif failed > 0 and state is not State.FAILED:
        label = ngettext("%(number)s attempt made", "%(number)s attempts made", failed) % {"number": failed}
        yield _event(label, "", failed_at(job, now)[0], "done", now)
    if state is State.RUNNING:
        number = _("Attempt %(number)s of %(most)s") % {"number": job.attempts, "most": job.max_attempts}
        yield _event(_("Running"), f"{number}, {job.locked_by}", job.locked_at, "running", now)
    elif state is State.FAILED:
        yield _event(_("Permanently failed"), _why_no_more(job), failed_at(job, now)[0], "failed", now)
    else:
        number = _("Attempt %(number)s of %(most)s") % {"number": job.attempts + 1, "most": job.max_attempts}
        label = _("Due") if job.is_due else _("Next attempt") if job.attempts else _("Runs")
        yield _event(label, number, job.run_at, "ready" if job.is_due else "scheduled", now)


def _why_no_more(job: JobDetail) -> str:
    """A job that is given up early counts as one that used up its attempts, so their number says nothing then."""
    if error_summary.was_given_up(job.last_error):
        return _("the task gave it up, whatever attempts were left")
    return _("no attempts left (%(number)s of %(most)s)") % {"number": job.attempts, "most": job.max_attempts}


def failed_at(job: JobDetail, now: datetime) -> tuple[datetime, bool]:
    """When the last attempt failed, or the job was changed after that; and whether that is known.

    Our workers write the time down. Others, as Node's, do not: then it was the usual back-off before the next
    attempt would be.
    """
    if job.updated_at > job.created_at and job.locked_at is None:
        return job.updated_at, True
    try:
        guess = job.run_at - timedelta(seconds=math.exp(min(job.attempts, 10)))
    except OverflowError:
        guess = datetime.min.replace(tzinfo=UTC)
    return max(job.created_at, min(now, max(guess, min(job.updated_at, now)))), False


def _of_entry(entry: LogEntry, now: datetime) -> Event:
    return _event(entry.get_change_message(), str(entry.user), entry.action_time, "person", now)
