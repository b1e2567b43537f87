"""The items of the crontab, which the list shows beside the schedules. They are in code: people run and pause them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker import api
from django_graphile_worker.admin import audit, databases
from django_graphile_worker.admin.databases import Session
from django_graphile_worker.admin.project_items import read_crontab
from django_graphile_worker.admin.schedules.permissions import SchedulePermissionsAdmin
from django_graphile_worker.crontab import CronItem, upcoming
from django_graphile_worker.crontab.items import flags_of_run
from django_graphile_worker.models import RecurringTask, Schedule
from django_graphile_worker.models.schedules import find_task
from django_graphile_worker.recurring import due_since
from django_graphile_worker.sql.schedules import from_code, listing, runs
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.sql.schedules.listing import ScheduleState

# The search for the next runs of a callable calls it for each minute, so it ends after this time.
LOOK_AHEAD = timedelta(days=2)
# So many names of tasks are looked up: most schedules have one of a few tasks.
MAX_TASKS = 1_000
# The permission of an item that each action needs.
PERMISSIONS = {"run_now": "run", "pause": "pause", "resume": "pause"}


@dataclass(frozen=True, slots=True)
class CodeItem:
    """An item of the crontab, with its row in the database; an item that no worker has seen yet has no row."""

    item: CronItem
    known: KnownCrontab | None
    now: datetime
    is_failing: bool
    has_missed: bool

    @property
    def is_paused(self) -> bool:
        return self.known is not None and self.known.is_paused

    @property
    def due_since(self) -> datetime | None:
        """The first time that no worker fired in time."""
        return due_since(self.item, self.known, self.now)

    @property
    def last_tick(self) -> datetime | None:
        return None if self.known is None else self.known.last_execution

    def next_times(self, number: int) -> tuple[datetime, ...]:
        if self.is_paused:
            return ()
        try:
            return upcoming(self.item, self.now, number, look_ahead=LOOK_AHEAD)
        except Exception:  # the match of an item may be a function of the project, which may raise anything
            return ()

    @property
    def next_at(self) -> datetime | None:
        """The time by which a list is sorted. A function is not asked for times that the page does not show."""
        times = self.next_times(1) if isinstance(self.item.match, str) else ()
        return times[0] if times else None

    def states(self) -> frozenset[ScheduleState]:
        own = ScheduleState.PAUSED if self.is_paused else ScheduleState.ACTIVE
        problems = {
            ScheduleState.FAILING: self.is_failing,
            ScheduleState.MISSED: self.has_missed,
            ScheduleState.LATE: self.due_since is not None,
        }
        return frozenset({ScheduleState.ANY, own, *(state for state, has_it in problems.items() if has_it)})

    def as_schedule(self) -> Schedule:
        """Return a schedule without an id, for the columns of the list."""
        match = self.item.match
        return Schedule(
            name=self.item.name,
            task=self.item.task,
            cron=match if isinstance(match, str) else None,
            time_zone=str(self.item.zone or "UTC"),
            payload=self.item.payload or {},
            queue_name=self.item.queue_name,
            priority=self.item.priority,
            max_attempts=self.item.max_attempts,
            job_key=self.item.job_key,
            paused_until=Schedule.FOREVER if self.is_paused else None,
            last_tick=self.last_tick,
            is_from_code=True,
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """What one page of the list needs to know of all schedules, and of the crontab of this site."""

    now: datetime
    # The tasks that schedules have, and those of them that this project does not have.
    tasks: Collection[str]
    unknown_tasks: frozenset[str]
    # Whether the user may see how runs ended: it tells about their jobs.
    sees_outcomes: bool
    items: list[CodeItem]
    # What is wrong with the crontab.
    errors: list[str]
    # The items that workers have scheduled and that are no longer in the crontab.
    removed: dict[str, KnownCrontab]


def read_facts(session: Session, now: datetime, *, sees_outcomes: bool) -> Facts:
    cursor, schema = session
    items, errors = read_crontab()
    names = [item.name for item in items]
    known = from_code.known_items(cursor, schema=schema)
    failing = listing.failing_crontabs(cursor, names, schema=schema) if sees_outcomes else ()
    missed = frozenset(listing.missed_items(cursor, names, schema=schema))
    tasks = listing.tasks(cursor, schema=schema, limit=MAX_TASKS)
    return Facts(
        now=now,
        tasks=tasks,
        unknown_tasks=frozenset(task for task in tasks if find_task(task) is None),
        sees_outcomes=sees_outcomes,
        items=[
            CodeItem(item, known.get(item.name), now, is_failing=item.name in failing, has_missed=item.name in missed)
            for item in items
        ],
        errors=errors,
        # With errors the crontab has no items, and every known item would be listed as removed.
        removed={} if errors else {name: row for name, row in sorted(known.items()) if name not in names},
    )


class ScheduleItemsAdmin(SchedulePermissionsAdmin):
    """The actions on items. A pause is for all workers, also those of Node.js, and has no end."""

    def act_on_item(self, request: HttpRequest, action: str, name: str) -> HttpResponse:
        item = next((each for each in read_crontab()[0] if each.name == name), None)
        if item is None or action not in PERMISSIONS:
            raise Http404
        self.require(self.sees_items(request) and self.has_item_permission(request, PERMISSIONS[action], item.task))
        if action == "run_now":
            self._run_item(request, item)
        else:
            self._pause_item(request, item, is_pause=action == "pause")
        return HttpResponseRedirect(request.get_full_path())

    def _run_item(self, request: HttpRequest, item: CronItem) -> None:
        alias, now = databases.selected_alias(request), datetime.now(UTC)
        added = {"_cron": {"ts": now.strftime("%Y-%m-%dT%H:%M:00.000Z"), "backfilled": False}}
        with databases.writing(alias) as (cursor, schema):
            job = api.add_job(
                item.task,
                {**(item.payload or {}), **added},
                queue_name=item.queue_name,
                max_attempts=item.max_attempts,
                job_key=item.job_key,
                job_key_mode=item.job_key_mode,
                priority=item.priority,
                flags=flags_of_run(item, now),
                using=alias,
            )
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
        else:
            text = _("Paused %(name)s.") if is_pause else _("Resumed %(name)s.")
            messages.success(request, text % {"name": item.name})

    def added_message(self, request: HttpRequest, task: str, job_id: int) -> str:
        """Return the message about a new job, with a link if the user may see jobs."""
        message = _("Added %(task)s #%(id)s.") % {"task": task, "id": job_id}
        job_url = self.url(request, "job", "change", job_id)
        return format_html('<a href="{}">{}</a>', job_url, message) if job_url else message
