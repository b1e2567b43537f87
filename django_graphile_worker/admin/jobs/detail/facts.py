"""The table of details on the page of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker.admin import error_summary, formatting, pause_notice
from django_graphile_worker.admin.jobs.states import flag_names
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.job_flags import EXPIRY_PREFIX, as_time, own_expiry, schedule_in, without_run_flags
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.registry import DEFAULT_LABEL, split_identifier
from django_graphile_worker.sql.control import Pause, PauseKind
from django_graphile_worker.sql.inspection.job_detail import MAX_AHEAD, JobDetail
from django_graphile_worker.sql.inspection.job_search.criteria import State


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
        yield Fact(_("Waiting for"), value, self.page.url(self.request, "limitkey", q=job.limit_key))

    def _optional(self) -> Iterator[Fact]:
        job = self.job
        if job.key is not None:
            yield Fact(_("Job key"), job.key)
        flags = flag_names(job.flags_text)
        if expires_at := as_time(own_expiry(flags)):
            yield Fact(_("Expires"), formatting.exact_time(expires_at))
        if schedule_id := schedule_in(flags):
            yield Fact(_("Schedule"), f"#{schedule_id}", self.page.url(self.request, "schedule", "change", schedule_id))
        if names := [flag for flag in without_run_flags(flags) if not flag.startswith(EXPIRY_PREFIX)]:
            yield Fact(_("Flags"), ", ".join(names))
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
            yield Fact(_("Reason"), job.stop_reason)

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
