"""What the page of a job says about it: why it waits, its timeline, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.models import DELETION, LogEntry
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker import conf
from django_graphile_worker.admin import audit, databases, error_summary, formatting, pause_notice
from django_graphile_worker.admin.jobs.states import flag_names
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search_terms import SearchTerm
from django_graphile_worker.job_flags import as_time, headers_in, names_in, own_expiry, schedule_in
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.registry import DEFAULT_LABEL, split_identifier
from django_graphile_worker.results.reading import Result, ResultStatus
from django_graphile_worker.sql.control import Pause, PauseKind
from django_graphile_worker.sql.inspection import lock_holders, overview
from django_graphile_worker.sql.inspection.job_detail import MAX_AHEAD, JobDetail
from django_graphile_worker.sql.inspection.job_list import State
from django_graphile_worker.sql.inspection.lock_holders import Holder, Slots
from django_graphile_worker.sql.inspection.past_attempts import HistoryRow
from django_graphile_worker.sql.results import HistoryOutcome


def why_waiting(
    page: PageAdmin, request: HttpRequest, job: JobDetail, pauses: Sequence[Pause], pauses_of_job: Sequence[Pause]
) -> str:
    """Return what a ready job waits for; "" for a job in another state, and if it is not known."""
    if job.state is not State.READY:
        return ""
    if pauses_of_job:
        return pause_notice.sentence(pauses_of_job[0])
    if job.queue_locked_by is not None:
        return _("A job of its queue runs.") if job.queue_running_id else _("A worker holds its queue.")
    alias, task = databases.selected_alias(request), job.task_identifier or ""
    timeout, flags = conf.current().worker_timeout, flag_names(job.flags_text)
    with databases.reading(alias) as (cursor, schema):
        alive = [each for each in lock_holders.holders(cursor, schema=schema) if each.is_alive(timeout)]
        workers = [each for each in alive if task in each.tasks]
        able = [each for each in workers if not each.forbidden_flags.intersection(flags)]
        slots = lock_holders.slots_of(able, timeout)
        # The number of jobs is about all jobs.
        is_counted = bool(slots.total) and page.visible_ids(request, alias) is None
        before = _jobs_before(cursor, job, able, pauses, schema) if is_counted else 0
    if not workers:
        return _("No running worker handles this task.") if alive else _("No worker is running.")
    if not able:
        return _("The workers that handle this task forbid a flag of the job.")
    return " ".join(filter(None, [_of_slots(slots), _of_jobs(before)]))


def _jobs_before(cursor: Any, job: JobDetail, workers: Sequence[Holder], pauses: Sequence[Pause], schema: str) -> int:
    paused = {pause.name for pause in pauses if pause.kind is PauseKind.TASK}
    tasks = {task for worker in workers for task in worker.tasks} - paused
    return overview.jobs_before(cursor, job.id, sorted(tasks), priority=job.priority, run_at=job.run_at, schema=schema)


def _of_slots(slots: Slots) -> str:
    if not slots.total:
        return ""
    if not slots.are_all_busy:
        text = _("Of the workers that handle this task, %(free)s of %(total)s slots are free.")
        return text % {"free": formatting.number(slots.total - slots.in_use), "total": formatting.number(slots.total)}
    text = ngettext(
        "The only slot of the workers that handle this task is busy.",
        "All %(number)s slots of the workers that handle this task are busy.",
        slots.total,
    )
    return text % {"number": formatting.number(slots.total)}


def _of_jobs(number: int) -> str:
    if not number:
        return ""
    if number > overview.MAX_BEFORE:
        return _("More than %(number)s jobs are before it.") % {"number": formatting.number(overview.MAX_BEFORE)}
    text = ngettext("About %(number)s job is before it.", "About %(number)s jobs are before it.", number)
    return text % {"number": formatting.number(number)}


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of the table; `url` is where its value links to."""

    name: str
    value: Any
    url: str = ""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts about one job."""

    page: PageAdmin
    request: HttpRequest
    job: JobDetail
    # Those that the job waits for.
    pauses: Sequence[Pause] = ()

    def all(self) -> list[Fact]:
        return [
            *self._always(),
            *self._pauses(),
            *self._limit(),
            *self._optional(),
            *self._cancellation(),
            *self._worker(),
            *self._queue(),
        ]

    def _always(self) -> Iterator[Fact]:
        job = self.job
        task, label = split_identifier(job.task_identifier or "")
        yield Fact(_("Task"), task or _("unknown task"), self._search("task", job.task_identifier or "?"))
        if label != DEFAULT_LABEL:
            yield Fact(_("Label"), label, self._search("label", label))
        yield Fact(_("Priority"), job.priority)
        yield Fact(_("Attempts"), _attempts(job))
        yield Fact(_("Run at"), formatting.exact_time(job.run_at))
        yield Fact(_("Created"), formatting.exact_time(job.created_at))
        yield Fact(_("Updated"), formatting.exact_time(job.updated_at))

    def _pauses(self) -> Iterator[Fact]:
        kinds = {
            PauseKind.QUEUE: _("Queue paused"),
            PauseKind.TASK: _("Task paused"),
            PauseKind.FLAG: _("Flag paused"),
        }
        for pause in self.pauses:
            value = pause_notice.sentence(pause)
            if pause.until is not None:
                value = f"{value} ({_('until %(time)s') % {'time': formatting.exact_time(pause.until)}})"
            url = self.page.url(self.request, "pausedwork", kind=pause.kind.value, name=pause.name)
            yield Fact(kinds[pause.kind], value, url)

    def _limit(self) -> Iterator[Fact]:
        job = self.job
        if job.limit_key is None:
            return
        sees_payloads = self.page.has_app_permission(self.request, "view_payload")
        value = _("the key %(key)s of the limit %(limit)s, since %(time)s") % {
            "key": job.limit_key if sees_payloads else redact_text(job.limit_key),
            "limit": job.limit_name,
            "time": formatting.exact_time(job.limited_since),
        }
        # The key contains values of the payload.
        query = {"q": job.limit_key} if sees_payloads else {}
        yield Fact(_("Waiting for"), value, self.page.url(self.request, "limitkey", **query))

    def _optional(self) -> Iterator[Fact]:
        job = self.job
        if job.key is not None:
            yield Fact(_("Job key"), job.key)
        flags = flag_names(job.flags_text)
        if expires_at := as_time(own_expiry(flags)):
            yield Fact(_("Expires"), formatting.exact_time(expires_at))
        if schedule_id := schedule_in(flags):
            yield Fact(_("Schedule"), f"#{schedule_id}", self.page.url(self.request, "schedule", "change", schedule_id))
        if names := names_in(flags):
            yield Fact(_("Flags"), ", ".join(names))
        headers = headers_in(flags)
        if headers and self.page.has_app_permission(self.request, "view_payload"):
            yield Fact(_("Headers"), ", ".join(f"{name}={value}" for name, value in headers.items()))
        if job.revision:
            yield Fact(_("Revision"), job.revision)
        if job.recoveries:
            yield Fact(_("Worker crashes"), job.recoveries)

    def _cancellation(self) -> Iterator[Fact]:
        job = self.job
        if job.stop_reason is None:
            return
        yield Fact(_("Cancelled"), formatting.exact_time(job.stop_requested_at))
        if job.stop_requested_by:
            yield Fact(_("Cancelled by"), job.stop_requested_by)
        if job.stop_reason:
            sees_payloads = self.page.has_app_permission(self.request, "view_payload")
            yield Fact(_("Reason"), job.stop_reason if sees_payloads else redact_text(job.stop_reason))

    def _worker(self) -> Iterator[Fact]:
        job, workers_url = self.job, self.page.url(self.request, "worker")
        if job.locked_by is not None:
            yield Fact(_("Held by"), f"{job.locked_by} ({_heartbeat(job.holder_silent_seconds)})", workers_url)
        if job.is_available and not job.live_workers:
            value = _("No running worker handles this task (Node.js workers are not listed)")
            yield Fact(_("Workers"), value, workers_url)

    def _queue(self) -> Iterator[Fact]:
        job = self.job
        if job.queue_name is None:
            return
        yield Fact(_("Queue"), job.queue_name, self._search("queue", job.queue_name))
        is_paused = any(pause.kind is PauseKind.QUEUE for pause in self.pauses)
        if job.locked_at is None and job.queue_locked_by is not None and not is_paused:
            yield self._queue_lock()
        if job.ahead:
            yield Fact(_("Jobs ahead in the queue"), formatting.capped_number(job.ahead, MAX_AHEAD))

    def _queue_lock(self) -> Fact:
        """Return the worker that holds the queue of this job, and the job that it runs."""
        job = self.job
        value = _("%(worker)s has held the queue since %(time)s") % {
            "worker": job.queue_locked_by,
            "time": formatting.exact_time(job.queue_locked_at),
        }
        if not self.page.visible_among(self.request, [job.queue_running_id]):
            return Fact(_("Waiting for"), value)
        url = self.page.url(self.request, "job", "change", job.queue_running_id)
        return Fact(_("Waiting for"), f"{value}: {job.queue_running_task} #{job.queue_running_id}", url)

    def _search(self, name: str, value: str) -> str:
        return self.page.url(self.request, "job", q=str(SearchTerm(name, value)))


def _attempts(job: JobDetail) -> str:
    # PermanentFailure sets attempts to max_attempts, however often the job ran. Workers of this package record the
    # number of attempts that were made.
    if job.attempts_made < job.attempts:
        return _("%(number)s of %(most)s, then given up") % {"number": job.attempts_made, "most": job.max_attempts}
    if job.state is State.FAILED and error_summary.was_given_up(job.last_error):
        return _("none left of %(most)s") % {"most": job.max_attempts}
    return _("%(number)s of %(most)s") % {"number": job.attempts, "most": job.max_attempts}


def _heartbeat(silent_seconds: float | None) -> str:
    if silent_seconds is None:
        return _("not registered")
    return _("last heartbeat %(duration)s ago") % {"duration": formatting.duration(silent_seconds)}


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


@dataclass(frozen=True, slots=True)
class Failure:
    """When the last attempt failed, if the history or the result has it; else when the job was last changed."""

    at: datetime
    is_recorded: bool


def timeline(
    job: JobDetail, entries: list[LogEntry], now: datetime, recorded_failure: datetime | None = None
) -> list[Event]:
    """Return the events of a job in order: creation, attempts, changes by users, and the next attempt."""
    failure = Failure(recorded_failure or job.updated_at, is_recorded=recorded_failure is not None)
    events = [
        *_past_events(job, failure, now),
        _current_event(job, failure, now),
        *(_log_event(entry, now) for entry in entries),
    ]
    return sorted(events, key=lambda event: event.time)


def _event(label: str, detail: str, at: datetime, css_class: str, now: datetime) -> Event:
    return Event(label, detail, formatting.relative_time(at, now), formatting.exact_time(at), css_class, at)


def _past_events(job: JobDetail, failure: Failure, now: datetime) -> Iterator[Event]:
    yield _event(_("Created"), "", job.created_at, "done", now)
    made = job.attempts - (1 if job.state is State.RUNNING else 0)
    # The attempts of a running job that is cancelled are used up, whatever number of them was made.
    if made <= 0 or job.state is State.FAILED or job.stop_reason is not None:
        return
    if job.last_error:
        label = ngettext("%(number)s attempt failed", "%(number)s attempts failed", made) % {"number": made}
        detail = _("time of the last failure") if failure.is_recorded else _("when the job was last changed")
        yield _failure_event(label, detail, failure, now)
    else:
        label = ngettext("%(number)s attempt made", "%(number)s attempts made", made) % {"number": made}
        yield _event(label, "", failure.at, "done", now)


def _failure_event(label: str, detail: str, failure: Failure, now: datetime) -> Event:
    return _event(label, detail, failure.at, "failed", now)


def _current_event(job: JobDetail, failure: Failure, now: datetime) -> Event:
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


_CANCELLATION = re.compile(r"Cancelled(?: by (?P<by>.+?))?(?:: (?P<reason>.+)|\.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended: the class of its badge, a sentence, what else is known, and the time."""

    status: str
    sentence: str
    detail: str = ""
    at: Any = ""


def ending_of(
    kept: Result | None, last: HistoryRow | None, entries: Sequence[LogEntry], *, sees_payloads: bool
) -> Ending | None:
    """Return how a job ended; None if nothing tells."""
    deletion = next((entry for entry in entries if entry.action_flag == DELETION), None)
    ending = None
    if kept is not None:
        ending = _of_result(kept, deletion, sees_payloads)
    elif last is not None:
        ending = _of_attempt(last, deletion, sees_payloads)
    if ending is None and deletion is not None:
        ending = _deleted(deletion, deletion.action_time)
    return ending


def _of_result(kept: Result, deletion: LogEntry | None, sees_payloads: bool) -> Ending:
    if kept.status is ResultStatus.SUCCEEDED:
        return _succeeded(kept.last_started_at, kept.finished_at)
    if kept.status is ResultStatus.CANCELLED:
        return _cancelled(kept.cancelled_by or "", kept.cancel_reason or "", kept.finished_at, sees_payloads)
    if kept.status is ResultStatus.EXPIRED:
        return _expired(kept.finished_at)
    if kept.status is ResultStatus.FAILED:
        return _failed(kept.last_error, kept.finished_at, sees_payloads)
    return _deleted(deletion, kept.finished_at)


def _of_attempt(last: HistoryRow, deletion: LogEntry | None, sees_payloads: bool) -> Ending | None:
    """Return the ending that the last attempt of the history tells; None if the job waited for another attempt."""
    outcome = HistoryOutcome(last.outcome)
    if outcome is HistoryOutcome.SUCCEEDED:
        return _succeeded(last.started_at, last.ended_at)
    if outcome is HistoryOutcome.CANCELLED:
        found = _CANCELLATION.fullmatch(last.error or "")
        by, reason = (found["by"] or "", found["reason"] or "") if found else ("", last.error or "")
        return _cancelled(by, reason, last.ended_at, sees_payloads)
    if outcome is HistoryOutcome.EXPIRED:
        return _expired(last.ended_at)
    if outcome is HistoryOutcome.REMOVED_BY_OPERATOR:
        return _deleted(deletion, last.ended_at)
    if outcome in (HistoryOutcome.PERMANENTLY_FAILED, HistoryOutcome.FAILED_BY_OPERATOR) and deletion is None:
        return _failed(last.error, last.ended_at, sees_payloads)
    return None


def _succeeded(started_at: datetime | None, ended_at: datetime | None) -> Ending:
    at = formatting.relative_time(ended_at)
    if started_at is None or ended_at is None:
        return Ending("succeeded", _("Succeeded"), at=at)
    seconds = max((ended_at - started_at).total_seconds(), 0.0)
    return Ending("succeeded", _("Succeeded in %(duration)s") % {"duration": formatting.duration(seconds)}, at=at)


def _failed(error: str | None, ended_at: datetime | None, sees_payloads: bool) -> Ending:
    summary = error_summary.summarize(error, sees_payloads=sees_payloads).text
    return Ending("failed", _("Failed, then deleted"), summary, formatting.relative_time(ended_at))


def _cancelled(by: str, reason: str, ended_at: datetime | None, sees_payloads: bool) -> Ending:
    sentence = _("Cancelled by %(name)s") % {"name": by} if by else _("Cancelled")
    detail = reason if sees_payloads else redact_text(reason)
    return Ending("removed", sentence, detail, formatting.relative_time(ended_at))


def _expired(ended_at: datetime | None) -> Ending:
    return Ending("removed", _("Expired"), _("No worker had started it in time."), formatting.relative_time(ended_at))


def _deleted(deletion: LogEntry | None, at: datetime | None) -> Ending:
    if deletion is None:
        return Ending("removed", _("Deleted"), at=formatting.relative_time(at))
    sentence = _("Deleted by %(name)s") % {"name": deletion.user}
    return Ending("removed", sentence, audit.message_of(deletion), formatting.relative_time(deletion.action_time))
