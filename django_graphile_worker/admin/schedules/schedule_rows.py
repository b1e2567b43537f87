"""The rows of the list: a schedule or an item of the crontab, with its times, its runs and what the user may do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.schedule_phrases import TranslatedPhrases, schedule_in_words
from django_graphile_worker.admin.schedules.actions.row_buttons import (
    Button,
    buttons_of_item,
    buttons_of_schedule,
    is_direct,
)
from django_graphile_worker.admin.schedules.actions.schedule_actions import is_paused
from django_graphile_worker.admin.schedules.code_items import CodeItem
from django_graphile_worker.admin.schedules.next_times import NUMBER, NextTime, mistake_in, shown_times
from django_graphile_worker.admin.schedules.permissions import SchedulePermissionsAdmin
from django_graphile_worker.admin.schedules.problems import Problems
from django_graphile_worker.admin.schedules.run_strip import Strip
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.words import in_words, interval_text
from django_graphile_worker.sql.schedules.listing import LATE_AFTER, MISSED_WITHIN

LONGEST_DESCRIPTION = 200


@dataclass(frozen=True, slots=True)
class Badge:
    """A state or a problem of a schedule; `css_class` is a class of the states of jobs."""

    css_class: str
    text: str
    note: SafeString | str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the list."""

    key: str
    # None for an item of the crontab.
    id: int | None
    is_in_code: bool
    name: str
    url: str
    task: str
    task_url: str
    is_task_known: bool
    description: str
    words: str
    pattern: str
    # The queue, and for an item how far back it fires.
    tags: tuple[str, ...]
    badges: tuple[Badge, ...]
    next_times: tuple[NextTime, ...]
    last_run: SafeString | str
    strip: Strip | None
    # The buttons of the row, and those of its menu.
    buttons: tuple[Button, ...]
    menu: tuple[Button, ...]
    history_url: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule is due. A program can write a line that no parser reads: then there is a mistake instead."""

    words: str
    next_times: tuple[NextTime, ...]
    mistake: str = ""


def timing_of(schedule: Schedule, now: datetime) -> Timing:
    """Return the words and the next times of a schedule; a disabled schedule has none."""
    definition = Definition.of(schedule)
    try:
        words = in_words(definition, TranslatedPhrases())
        times = schedule.next_times(NUMBER)
        return Timing(words, shown_times(times, definition.zone, now))
    except (ValueError, OverflowError) as error:
        return Timing("", (), mistake_in(definition, error))


class RowMaker:
    """Makes the rows of one page of the list."""

    def __init__(self, page: SchedulePermissionsAdmin, request: HttpRequest, problems: Problems, now: datetime) -> None:
        self._page, self._request, self._problems, self._now = page, request, problems, now

    def of_schedule(self, schedule: Schedule, strip: Strip | None, *, is_failing: bool) -> Row:
        timing = timing_of(schedule, self._now)
        buttons = buttons_of_schedule(self._page, self._request, schedule, self._now)
        return Row(
            key=f"schedule-{schedule.pk}",
            id=schedule.pk,
            is_in_code=schedule.is_from_code,
            name=schedule.name,
            url=self._page.url(self._request, "schedule", "change", schedule.pk),
            task=schedule.task,
            task_url=self._page.url(self._request, "schedule", task=schedule.task),
            is_task_known=schedule.task not in self._problems.unknown_tasks,
            description=_cut(schedule.description),
            words=timing.words,
            pattern=_pattern(schedule),
            tags=(_("queue %(name)s") % {"name": schedule.queue_name},) if schedule.queue_name else (),
            badges=tuple(self._badges(schedule, timing, is_failing=is_failing)),
            next_times=timing.next_times,
            last_run=formatting.relative_time(schedule.last_tick, self._now) if schedule.last_tick else "",
            strip=strip,
            buttons=tuple(button for button in buttons if is_direct(button)),
            menu=tuple(button for button in buttons if not is_direct(button)),
            history_url=self._page.url(self._request, "schedule", "history", schedule.pk),
        )

    def of_item(self, item: CodeItem, strip: Strip | None) -> Row:
        return Row(
            key=f"item-{item.name}",
            id=None,
            is_in_code=True,
            name=item.name,
            url="",
            task=item.item.task,
            task_url=self._page.url(self._request, "schedule", task=item.item.task),
            is_task_known=True,
            description="",
            words=schedule_in_words(item.item),
            pattern=item.item.match if isinstance(item.item.match, str) else _("a function"),
            tags=tuple(_tags_of_item(item)),
            badges=tuple(self._badges_of_item(item)),
            next_times=shown_times(item.next_times(), item.item.zone, self._now),
            last_run=formatting.relative_time(item.last_tick, self._now) if item.last_tick else "",
            strip=strip,
            buttons=buttons_of_item(self._page, self._request, item),
            menu=(),
        )

    def _badges(self, schedule: Schedule, timing: Timing, *, is_failing: bool) -> Iterator[Badge]:
        if timing.mistake:
            yield Badge("gw-state-failed", _("not valid"), timing.mistake)
        if not schedule.is_enabled:
            yield Badge("gw-state-removed", _("disabled"))
        elif is_paused(schedule, self._now):
            yield Badge("gw-state-waiting", _("paused"), self._pause_end(schedule))
        elif schedule.next_at is not None and schedule.next_at >= formatting.LATEST:
            yield Badge("gw-state-removed", _("ended"))
        if schedule.task in self._problems.unknown_tasks:
            yield Badge("gw-state-failed", _("unknown task"), _("no task of this project has this name"))
        if is_failing:
            yield Badge("gw-state-failed", _("failing"))
        if (due := self._late_since(schedule)) is not None:
            yield Badge("gw-state-failed", _("late"), _due(due, self._now))
        if schedule.last_missed_at and self._age(schedule.last_missed_at) < timedelta(seconds=MISSED_WITHIN):
            yield Badge("gw-state-retrying", _("missed"), formatting.relative_time(schedule.last_missed_at, self._now))

    def _badges_of_item(self, item: CodeItem) -> Iterator[Badge]:
        if item.is_paused:
            yield Badge("gw-state-waiting", _("paused"))
        if item.known is None:
            yield Badge("gw-state-removed", _("new"), _("not scheduled by a worker yet"))
        if item.is_failing:
            yield Badge("gw-state-failed", _("failing"))
        if item.due_since is not None:
            yield Badge("gw-state-failed", _("late"), _due(item.due_since, self._now))
        if item.has_missed:
            yield Badge("gw-state-retrying", _("missed"))

    def _pause_end(self, schedule: Schedule) -> SafeString | str:
        until = schedule.paused_until
        if until is None or formatting.aware(until) >= formatting.LATEST:
            return ""
        return format_html(_("ends {time}"), time=formatting.relative_time(until, self._now))

    def _late_since(self, schedule: Schedule) -> datetime | None:
        """Return the time that no worker has fired; None if none is overdue."""
        due = schedule.next_at
        if due is None or not schedule.is_enabled or is_paused(schedule, self._now):
            return None
        # A schedule whose next time no worker has computed yet was due when it was changed.
        since = schedule.changed_at if formatting.aware(due) <= formatting.EARLIEST else due
        return since if since is not None and self._age(since) >= timedelta(seconds=LATE_AFTER) else None

    def _age(self, time: datetime) -> timedelta:
        return formatting.aware(self._now) - formatting.aware(time)


def _due(time: datetime, now: datetime) -> SafeString:
    return format_html(_("was due {time}"), time=formatting.relative_time(time, now))


def _tags_of_item(item: CodeItem) -> Iterator[str]:
    if item.item.queue_name:
        yield _("queue %(name)s") % {"name": item.item.queue_name}
    if item.item.period:
        yield _("backfill %(duration)s") % {"duration": formatting.duration(item.item.period.total_seconds())}


def _pattern(schedule: Schedule) -> str:
    """Return the times as they are written; a single time has no text of its own."""
    if schedule.cron is not None:
        return str(schedule.cron)
    return interval_text(schedule.interval) if schedule.interval is not None else ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_DESCRIPTION else f"{text[: LONGEST_DESCRIPTION - 1]}…"
