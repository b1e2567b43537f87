"""The form of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.jobs.forms import number_field
from django_graphile_worker.admin.schedules.editing.wall_clock import TimeZoneInput, WallClockField, moment, wall_clock
from django_graphile_worker.job_options import (
    LARGEST_MAX_ATTEMPTS,
    LARGEST_PRIORITY,
    MAX_JOB_KEY_LENGTH,
    MAX_QUEUE_NAME_LENGTH,
    SMALLEST_PRIORITY,
)
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.times import Definition, zone_of
from django_graphile_worker.schedules.validation import LONGEST_NAME, SEVERAL_FIELDS, WHEN, errors_in
from django_graphile_worker.schedules.words import interval_text, parse_interval

# A longer cron line is refused before it is parsed: one with each minute, hour and day has 320 characters.
LONGEST_CRON = 500
LONGEST_PHRASE = 100
TIMES = ("run_at", "starts_at", "ends_at")
# Fields in which nothing means null: what the task says.
NULLABLE = ("queue_name", "priority", "max_attempts", "job_key")
KINDS = [
    ("cron", gettext_lazy("Cron line")),
    ("interval", gettext_lazy("Interval")),
    ("run_at", gettext_lazy("Once")),
]


def _text(label: Any, longest: int, help_text: Any = "", **attributes: Any) -> forms.CharField:
    widget = forms.TextInput(attrs={"class": "vTextField", **attributes})
    return forms.CharField(label=label, required=False, max_length=longest, help_text=help_text, widget=widget)


def _code(label: Any, longest: int, help_text: Any) -> forms.CharField:
    return _text(label, longest, help_text, autocomplete="off", autocapitalize="off", spellcheck="false")


class ScheduleForm(forms.Form):
    """All that a schedule says, but its payload, which has a form of its own."""

    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=LONGEST_NAME, widget=forms.TextInput(attrs={"class": "vTextField"})
    )
    task = forms.ChoiceField(label=gettext_lazy("Task"))
    description = forms.CharField(
        label=gettext_lazy("Description"),
        required=False,
        max_length=10_000,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
    )
    is_enabled = forms.BooleanField(
        label=gettext_lazy("Enabled"),
        required=False,
        initial=True,
        help_text=gettext_lazy("A schedule that is not enabled adds no jobs."),
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("Runs by"), choices=KINDS, initial="cron", widget=forms.RadioSelect, required=True
    )
    cron = _code(
        gettext_lazy("Cron line"),
        LONGEST_CRON,
        gettext_lazy("Minute, hour, day, month and day of the week: 0 9 * * 1-5. Or @hourly, @daily, @weekly, …"),
    )
    interval = _code(
        gettext_lazy("Interval"), LONGEST_PHRASE, gettext_lazy("Such as 10 s, 90 minutes, 1h30m or 2 days.")
    )
    run_at = WallClockField(label=gettext_lazy("Run at"), required=False)
    time_zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=64,
        widget=TimeZoneInput,
        help_text=gettext_lazy("All times of this form are in this time zone."),
    )
    starts_at = WallClockField(
        label=gettext_lazy("Starts at"), required=False, help_text=gettext_lazy("Empty: at once.")
    )
    ends_at = WallClockField(label=gettext_lazy("Ends at"), required=False, help_text=gettext_lazy("Empty: never."))
    missed = forms.ChoiceField(
        label=gettext_lazy("Missed times"),
        choices=Schedule.Missed.choices,
        initial=Schedule.Missed.SKIP,
        help_text=gettext_lazy("What happens to times at which no worker was running."),
    )
    missed_within = _code(
        gettext_lazy("Missed within"),
        LONGEST_PHRASE,
        gettext_lazy("How far back missed times are run, if all of them are: 2 days."),
    )
    overlap = forms.ChoiceField(
        label=gettext_lazy("Overlap"),
        choices=Schedule.Overlap.choices,
        initial=Schedule.Overlap.ALLOW,
        help_text=gettext_lazy("What happens at a time at which the last run is not over."),
    )
    queue_name = _code(
        gettext_lazy("Queue"),
        MAX_QUEUE_NAME_LENGTH,
        gettext_lazy("The jobs of a queue run one after another. Default: the queue of the task."),
    )
    priority = number_field(
        gettext_lazy("Priority"),
        SMALLEST_PRIORITY,
        LARGEST_PRIORITY,
        help_text=gettext_lazy("Lower numbers run first."),
    )
    max_attempts = number_field(gettext_lazy("Maximum attempts"), 1, LARGEST_MAX_ATTEMPTS)
    job_key = _code(gettext_lazy("Job key"), MAX_JOB_KEY_LENGTH, gettext_lazy("At most one job has a key."))
    # The revision of the schedule that the form shows: a later one has other values.
    revision = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def __init__(
        self,
        data: Any,
        *,
        tasks: Mapping[str, str],
        schedule: Schedule | None = None,
        initial: Mapping[str, Any] | None = None,
        is_taken: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._schedule = schedule
        self._is_taken = is_taken
        super().__init__(data, initial={**(initial_of(schedule) if schedule else _initial()), **(initial or {})})
        self._name_tasks(tasks)

    def _name_tasks(self, tasks: Mapping[str, str]) -> None:
        field: Any = self.fields["task"]
        empty = [] if self.initial.get("task") in tasks else [("", _("Choose a task"))]
        field.choices = [
            *empty,
            *(
                (name, _("%(task)s: %(description)s") % {"task": name, "description": text} if text else name)
                for name, text in tasks.items()
            ),
        ]
        field.error_messages["invalid_choice"] = _(
            "Expected a task that you may schedule, got “%(value)s”. The task needs schedulable=True, and you need the "
            "permission to schedule it."
        )

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if self._is_taken(name):
            raise forms.ValidationError(_("Expected a name of its own, got the name of another schedule."))
        return name

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        self._fill_in(cleaned)
        now = datetime.now(UTC) if self._has_other_time(cleaned) else None
        for name, texts in errors_in(self._checked(cleaned), now=now).items():
            field = name if name in self.fields else None
            if name not in self.errors:
                self.add_error(field, [_sentence(text) for text in texts])
        return cleaned

    def _fill_in(self, cleaned: dict[str, Any]) -> None:
        """Replace what the fields have by what a schedule has: null for nothing, and times instead of wall clocks."""
        kind = cleaned.get("kind")
        for name in WHEN:
            cleaned[name] = (cleaned.get(name) or None) if name == kind else None
            if kind and name != kind:
                # The page does not show the fields of the other kinds.
                self.errors.pop(name, None)
        for name in NULLABLE:
            cleaned[name] = None if cleaned.get(name) == "" else cleaned.get(name)
        is_all = cleaned.get("missed") == Schedule.Missed.ALL
        cleaned["missed_within"] = (cleaned.get("missed_within") or None) if is_all else None
        # Another time zone than one that exists is an error of its own.
        zone = _zone(cleaned.get("time_zone", "")) or UTC
        for name in TIMES:
            try:
                cleaned[name] = self._time(name, cleaned, zone)
            except forms.ValidationError as error:
                self.add_error(name, error)

    def _time(self, name: str, cleaned: Mapping[str, Any], zone: tzinfo) -> datetime | None:
        shown = cleaned.get(name)
        if shown is None:
            return None
        if self._schedule is not None and cleaned["time_zone"] == self._schedule.time_zone:
            stored: datetime | None = getattr(self._schedule, name)
            if stored is not None and shown == self.initial.get(name):
                # The form shows neither fractions of a second nor which of two equal hours it is.
                return formatting.aware(stored)
        return moment(shown, zone)

    def _has_other_time(self, cleaned: Mapping[str, Any]) -> bool:
        """Return whether the form has a time for a single run that is not the stored one, which may have passed."""
        return self._schedule is None or cleaned.get("run_at") != _aware(self._schedule.run_at)

    def _checked(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that are checked further: those without an error, and when the schedule fires."""
        kind = cleaned.get("kind") or ""
        values = {name: value for name, value in cleaned.items() if name not in self.errors and name not in WHEN}
        if kind and kind not in self.errors and cleaned[kind] is None:
            self.add_error(kind, _("This field is required."))
        if kind and kind not in self.errors:
            return {**values, kind: cleaned[kind]}
        return {**values, "run_at": _SOME_TIME, "starts_at": None, "ends_at": None}

    def values(self) -> dict[str, Any]:
        """Return the fields of the schedule, but its payload."""
        values = {name: value for name, value in self.cleaned_data.items() if name not in ("kind", "revision")}
        for name in ("interval", "missed_within"):
            values[name] = self._interval(name, values[name])
        return values

    def _interval(self, name: str, text: str | None) -> timedelta | None:
        stored: timedelta | None = getattr(self._schedule, name) if self._schedule is not None else None
        if text is None or (stored is not None and interval_text(stored) == text):
            return None if text is None else stored
        return parse_interval(text)

    def definition(self) -> Definition | None:
        """Return when the schedule is due; None if the form does not say it yet."""
        if self.errors.keys() & {*WHEN, *TIMES, "kind", "time_zone", SEVERAL_FIELDS}:
            return None
        values = {name: self.cleaned_data[name] for name in (*WHEN, "time_zone", "starts_at", "ends_at")}
        values["interval"] = self._interval("interval", values["interval"])
        return Definition(**values, anchor_at=self._anchor(values))

    def _anchor(self, values: Mapping[str, Any]) -> datetime | None:
        """Return the time from which an interval is counted: a change of the interval or of its start begins anew."""
        stored = self._schedule
        is_same = stored is not None and (values["interval"], values["starts_at"]) == (
            stored.interval,
            stored.starts_at,
        )
        return stored.anchor_at if stored is not None and is_same else None


# Stands for a time that has an error of its own.
_SOME_TIME = datetime(9000, 1, 1, tzinfo=UTC)


def _aware(time: datetime | None) -> datetime | None:
    return None if time is None else formatting.aware(time)


def _zone(name: str) -> tzinfo | None:
    try:
        return zone_of(name) or UTC
    except ValueError:
        return None


def _initial() -> dict[str, Any]:
    zone = timezone.get_current_timezone_name()
    return {"time_zone": zone if _zone(zone) else "UTC"}


def initial_of(schedule: Schedule) -> dict[str, Any]:
    """Return the values of a schedule as the form shows them."""
    zone = _zone(schedule.time_zone) or UTC
    names = ("name", "task", "description", "is_enabled", "cron", "time_zone", "missed", "overlap", "revision")
    return {
        **{name: getattr(schedule, name) for name in (*names, *NULLABLE)},
        **{name: wall_clock(getattr(schedule, name), zone) for name in TIMES},
        "kind": next(name for name in WHEN if getattr(schedule, name) is not None),
        "interval": interval_text(schedule.interval) if schedule.interval else "",
        "missed_within": interval_text(schedule.missed_within) if schedule.missed_within else "",
    }


def _sentence(text: str) -> str:
    return str(capfirst(text))
