"""Runs, pauses and resumes items of the crontab from the list of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker import api
from django_graphile_worker.admin import audit, databases
from django_graphile_worker.admin.project_items import read_crontab
from django_graphile_worker.admin.schedules.actions.action_steps import Done
from django_graphile_worker.admin.schedules.actions.schedule_actions import ScheduleAction
from django_graphile_worker.admin.schedules.list_view import ScheduleListAdmin
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.items import flags_of_run
from django_graphile_worker.models import RecurringTask
from django_graphile_worker.sql.schedules import from_code, runs

# The permission of an item that each action needs.
PERMISSIONS = {"run_now": "run", "pause": "pause", "resume": "pause"}


class ScheduleItemsAdmin(ScheduleListAdmin):
    """The actions on items. A pause is for all workers, also those of Node.js, and has no end."""

    def act_on_item(self, request: HttpRequest, action: ScheduleAction, name: str) -> HttpResponse:
        item = next((each for each in read_crontab()[0] if each.name == name), None)
        if item is None or action.name not in PERMISSIONS:
            raise Http404
        self.require(self.has_item_permission(request, PERMISSIONS[action.name], item.task))
        if action.name == "run_now":
            self._run_item(request, item)
        else:
            self._pause_item(request, item, is_pause=action.name == "pause")
        return HttpResponseRedirect(self.back_url(request))

    def _run_item(self, request: HttpRequest, item: CronItem) -> None:
        alias = databases.selected_alias(request)
        with databases.writing(alias) as (cursor, schema):
            job = _add_job_now(item, alias)
            runs.note_by_hand(cursor, item.name, job.id, by=request.user.get_username(), schema=schema)
            message = audit.Message(gettext_noop("Run now, as job #%(id)s."), {"id": str(job.id)})
            audit.log(request, RecurringTask, item.name, item.name, message)
        messages.success(request, self.added_message(request, item.task, job.id))

    def _pause_item(self, request: HttpRequest, item: CronItem, *, is_pause: bool) -> None:
        with databases.writing(databases.selected_alias(request)) as (cursor, schema):
            change = from_code.pause if is_pause else from_code.resume
            is_changed = change(cursor, item.name, schema=schema)
            if is_changed:
                text = gettext_noop("Paused.") if is_pause else gettext_noop("Resumed.")
                audit.log(request, RecurringTask, item.name, item.name, audit.Message(text))
        if not is_changed:
            messages.info(request, _("Nothing was changed: %(name)s is in this state already.") % {"name": item.name})
        elif is_pause:
            messages.success(request, _("Paused %(name)s.") % {"name": item.name})
        else:
            messages.success(request, _("Resumed %(name)s.") % {"name": item.name})

    def told(self, request: HttpRequest, action: ScheduleAction, done: Sequence[Done]) -> str:
        """Return the message about what was done."""
        job_id = done[0].job_id
        if len(done) == 1 and job_id is not None:
            return self.added_message(request, done[0].schedule.task, job_id)
        return str(action.result % {"number": len(done)})

    def added_message(self, request: HttpRequest, task: str, job_id: int) -> str:
        """Return the message about the new job, with a link if the user may see jobs."""
        message = _("Added %(task)s #%(id)s.") % {"task": task, "id": job_id}
        job_url = self.url(request, "job", "change", job_id)
        return format_html('<a href="{}">{}</a>', job_url, message) if job_url else message


def _add_job_now(item: CronItem, alias: str) -> Any:
    now = datetime.now(UTC)
    payload = {**(item.payload or {}), "_cron": {"ts": now.strftime("%Y-%m-%dT%H:%M:00.000Z"), "backfilled": False}}
    return api.add_job(
        item.task,
        payload,
        queue_name=item.queue_name,
        max_attempts=item.max_attempts,
        job_key=item.job_key,
        job_key_mode=item.job_key_mode,
        priority=item.priority,
        flags=flags_of_run(item, now),
        using=alias,
    )
