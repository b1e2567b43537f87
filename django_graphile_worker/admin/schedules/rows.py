"""A row of the list: when a schedule is due, what is wrong with it, its last runs, and what the user may do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.schedule_phrases import TranslatedPhrases, schedule_in_words
from django_graphile_worker.admin.schedules.actions import ACTIONS
from django_graphile_worker.admin.schedules.code_items import CodeItem
from django_graphile_worker.admin.schedules.run_strip import make_strip
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.validation import WHEN, errors_in
from django_graphile_worker.schedules.words import in_words, interval_text
from django_graphile_worker.sql.schedules.listing import ScheduleState
from django_graphile_worker.sql.schedules.runs import Run

NEXT_TIMES = 5
SHOWN_RUNS = 20
MAX_DESCRIPTION = 200


@dataclass(frozen=True, slots=True)
class NextTime:
    """A time as the pages show it. ``clock_change`` tells of a time change before it, in words."""

    at: datetime
    now: datetime
    exact: str
    clock_change: str = ""

    @property
    def relative(self) -> SafeString | str:
        """How far away it is. The list shows it of the first time only."""
        return formatting.relative_time(self.at, self.now)


def shown_times(times: Iterable[datetime], zone: tzinfo | None, now: datetime) -> tuple[NextTime, ...]:
    """Return times in the zone of the user and in that of the schedule."""
    zone = zone or UTC

    def offset_at(time: datetime) -> timedelta:
        return formatting.aware(time).astimezone(zone).utcoffset() or timedelta()

    found, offset = [], offset_at(now)
    for time in times:
        change = offset_at(time) - offset
        offset += change
        values = {"duration": formatting.duration(abs(change.total_seconds()))}
        text = ""
        if change > timedelta():
            text = _("after the clocks go forward by %(duration)s") % values
        elif change:
            text = _("after the clocks go back by %(duration)s") % values
        found.append(NextTime(time, now, formatting.in_both_zones(time, zone), text))
    return tuple(found)


def error_in(definition: Definition, error: Exception) -> str:
    """Return what is wrong with a definition, in sentences; a program can write a line that no parser reads."""
    found = errors_in({name: getattr(definition, name) for name in (*WHEN, "time_zone")})
    return " ".join(str(capfirst(text)) for texts in found.values() for text in texts) or str(error)


@dataclass(frozen=True, slots=True)
class Badge:
    """A state or a problem of a schedule; `css_class` is a class of the states of jobs."""

    css_class: str
    text: str
    note: SafeString | str = ""


@dataclass(frozen=True, slots=True)
class Button:
    """A button that sends ``value``; ``title`` names the row, for readers that hear the buttons of all rows."""

    value: str
    label: str
    title: str
    css_class: str = ""


class Row:
    """What the columns show of a schedule, or of an item of the crontab. ``page`` is the list that has it."""

    def __init__(
        self, page: RowSource, schedule: Any, item: CodeItem | None, runs: Sequence[Run],
        states: Collection[ScheduleState],
    ) -> None:  # fmt: skip
        self._page, self.schedule, self.item, self._states = page, schedule, item, states
        self.name: str = schedule.name
        self.task: str = schedule.task
        self.is_in_code: bool = schedule.is_from_code
        # A program can write a line that no parser reads: then there are neither words nor times.
        self.words, self.next_times, self.error = self._timing()
        self.strip = make_strip(runs, page.job_url, page.now)
        # The button of the row, and those of its menu: only what the user may do, and what changes something.
        self.buttons, self.menu = self._split_buttons()

    @property
    def url(self) -> str:
        """The page of the schedule; "" for an item of the crontab."""
        return self._page.url("schedule", "change", self.schedule.pk) if self.item is None else ""

    @property
    def history_url(self) -> str:
        return self._page.url("schedule", "history", self.schedule.pk) if self.item is None else ""

    @property
    def task_url(self) -> str:
        return self._page.url("schedule", task=self.task)

    @property
    def description(self) -> str:
        text: str = self.schedule.description
        return text if len(text) <= MAX_DESCRIPTION else f"{text[:MAX_DESCRIPTION]}…"

    @property
    def pattern(self) -> str:
        """The times as they are written; a single time has no text of its own."""
        if self.schedule.cron is not None:
            return str(self.schedule.cron)
        if self.schedule.interval is not None:
            return interval_text(self.schedule.interval)
        return "" if self.item is None else _("a function")

    @property
    def last_run(self) -> SafeString | str:
        return self._ago(self.schedule.last_tick) if self.schedule.last_tick else ""

    @property
    def tags(self) -> Iterator[str]:
        if self.schedule.queue_name:
            yield _("queue %(name)s") % {"name": self.schedule.queue_name}
        if self.item is not None and self.item.item.period:
            yield _("backfill %(duration)s") % {"duration": formatting.duration(self.item.item.period.total_seconds())}

    @property
    def badges(self) -> list[Badge]:
        return list(self._badges())

    def _ago(self, time: datetime) -> SafeString | str:
        return formatting.relative_time(time, self._page.now)

    def _timing(self) -> tuple[str, tuple[NextTime, ...], str]:
        now, item = self._page.now, self.item
        if item is not None:
            return schedule_in_words(item.item), shown_times(item.next_times(NEXT_TIMES), item.item.zone, now), ""
        definition = Definition.of(self.schedule)
        try:
            words = in_words(definition, TranslatedPhrases())
            return words, shown_times(self.schedule.next_times(NEXT_TIMES), definition.zone, now), ""
        except (ValueError, OverflowError) as error:
            return "", (), error_in(definition, error)

    def _badges(self) -> Iterator[Badge]:
        schedule, item, states = self.schedule, self.item, self._states
        if self.error:
            yield Badge("gw-state-failed", _("not valid"), self.error)
        if ScheduleState.DISABLED in states:
            yield Badge("gw-state-removed", _("disabled"))
        if ScheduleState.PAUSED in states:
            end = None if schedule.is_paused_forever else schedule.paused_until
            yield Badge(
                "gw-state-waiting", _("paused"), format_html(_("ends {time}"), time=self._ago(end)) if end else ""
            )
        if ScheduleState.ENDED in states:
            yield Badge("gw-state-removed", _("ended"))
        if item is not None and item.known is None:
            yield Badge("gw-state-removed", _("new"), _("not scheduled by a worker yet"))
        if ScheduleState.UNKNOWN_TASK in states:
            note = _("no task of this project has this name")
            yield Badge("gw-state-failed gw-unknown-task", _("unknown task"), note)
        if ScheduleState.FAILING in states:
            yield Badge("gw-state-failed", _("failing"))
        if ScheduleState.LATE in states and (due := self._due_since()):
            yield Badge("gw-state-failed", _("late"), format_html(_("was due {time}"), time=self._ago(due)))
        if ScheduleState.MISSED in states:
            missed_at = schedule.last_missed_at
            yield Badge("gw-state-retrying", _("missed"), self._ago(missed_at) if missed_at else "")

    def _due_since(self) -> datetime | None:
        if self.item is not None:
            return self.item.due_since
        # A schedule whose next time no worker has computed yet was due when it was changed.
        due: datetime | None = self.schedule.next_at
        changed_at: datetime | None = self.schedule.changed_at
        return changed_at if due is not None and formatting.aware(due) <= formatting.EARLIEST else due

    def _split_buttons(self) -> tuple[list[Button], list[Button]]:
        names = self._page.actions_on_item(self.item) if self.item else self._page.actions_on(self.schedule)
        names.sort(key=lambda name: name != "resume")
        found = [self._button(name) for name in names]
        return found[:1], found[1:]

    def _button(self, name: str) -> Button:
        action = ACTIONS[name]
        title = _("%(action)s: %(name)s") % {"action": action.label, "name": self.name}
        label = _("Pause…") if name == "pause" and self.item is None else str(action.label)
        value = f"{name} schedule {self.schedule.pk}" if self.item is None else f"{name} item {self.name}"
        return Button(value, label, title, "gw-danger" if action.is_destructive else "")


class RowSource:
    """What the rows of one page ask. ``linked`` has the jobs whose pages the user may see."""

    def __init__(self, page: Any, request: HttpRequest, now: datetime, linked: Collection[int]) -> None:
        self._page, self._request, self.now, self._linked = page, request, now, linked
        self._offered = page.get_actions(request)

    def url(self, model: str, page: str = "changelist", *args: Any, **query: Any) -> str:
        return str(self._page.url(self._request, model, page, *args, **query))

    def job_url(self, job_id: int) -> str:
        return self.url("job", "change", job_id) if job_id in self._linked else ""

    def actions_on(self, schedule: Schedule) -> list[str]:
        """Return the actions that the user may take, and that change something."""
        return [
            action.name
            for action in ACTIONS.values()
            if action.name in self._offered
            and action.applies(schedule, self.now)
            and action.is_allowed(self._page, self._request, schedule)
            # Another end of a pause is set from the list of actions.
            and not (action.name == "pause" and schedule.is_paused)
        ]

    def actions_on_item(self, item: CodeItem) -> list[str]:
        may = self._page.has_item_permission
        names = ["run_now"] if may(self._request, "run", item.item.task) else []
        # To pause an item, it needs its row in the database.
        if item.known is not None and may(self._request, "pause", item.item.task):
            names.append("resume" if item.is_paused else "pause")
        return names
