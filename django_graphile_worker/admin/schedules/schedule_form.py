"""The form of a schedule: a ``ModelForm``, with the form of the payload of its task."""

from __future__ import annotations

import functools
import zoneinfo
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.forms.utils import ErrorDict
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.jobs.forms import DateTimeLocalInput, number_field
from django_graphile_worker.admin.schedules.payload_form import PREFIX, PayloadForm, payload_form, shape_of
from django_graphile_worker.job_options import (
    LARGEST_MAX_ATTEMPTS,
    LARGEST_PRIORITY,
    MAX_JOB_KEY_LENGTH,
    MAX_QUEUE_NAME_LENGTH,
    SMALLEST_PRIORITY,
)
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.times import Definition, zone_of
from django_graphile_worker.schedules.validation import SEVERAL_FIELDS, WHEN, errors_in
from django_graphile_worker.schedules.words import interval_text, parse_interval

# A longer cron line is refused before it is parsed: one with each minute, hour and day has 320 characters.
MAX_CRON = 500
MAX_PHRASE = 100
TIMES = ("run_at", "starts_at", "ends_at")
PHRASES = ("interval", "missed_within")
# The fields in which nothing means null: what the task says.
NULLABLE = ("queue_name", "priority", "max_attempts", "job_key")
# The buttons that show the form again. The first two change the form of the payload, and check nothing.
DESCRIBE, SWITCH, PREVIEW = "describe", "switch", "preview"
# What the page says about its payload fields: the task that they are for, and whether they are JSON.
PAYLOAD_OF, PAYLOAD_AS = "payload_of", "payload_as"
AS_JSON = "json"
# Stands for a time that has an error of its own.
SOME_TIME = datetime(9000, 1, 1, tzinfo=UTC)


class TimeZoneInput(forms.TextInput):
    """A text field that completes the names of time zones."""

    def __init__(self) -> None:
        super().__init__(attrs={"list": "gw-time-zones", "autocomplete": "off", "spellcheck": "false"})

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return format_html("{}{}", super().render(name, value, attrs, renderer), _time_zones())


@functools.cache
def _time_zones() -> SafeString:
    """Return the time zones of the world; names without a region are left out, but for UTC."""
    known = zoneinfo.available_timezones()
    names = sorted(name for name in known if "/" in name and not name.startswith(("Etc/", "SystemV/")))
    options = format_html_join("", '<option value="{}"></option>', ((each,) for each in ("UTC", *names)))
    return format_html('<datalist id="gw-time-zones">{}</datalist>', options)


class WallClockField(forms.CharField):
    """A date and time as the clocks show it; it is aware only if the user has typed an offset."""

    widget = DateTimeLocalInput

    def to_python(self, value: Any) -> Any:
        text = str(super().to_python(value) or "").strip()
        try:
            return datetime.fromisoformat(text) if text else None
        except ValueError:
            message = _("Enter a date and time like %(example)s.")
            raise ValidationError(message % {"example": "2026-05-01 09:00"}) from None


def moment(shown: datetime, zone: tzinfo) -> datetime:
    """Return the time at which the clocks of a zone show this; the first of two, as for cron lines.

    Raise ValidationError if they never show it, because they go forward then.
    """
    try:
        if shown.tzinfo is not None:
            return shown.astimezone(UTC)
        found = shown.replace(tzinfo=zone).astimezone(UTC)
        is_skipped = found.astimezone(zone).replace(tzinfo=None) != shown
    except OverflowError:
        raise ValidationError(_("Enter a year from 2 to 9998.")) from None
    if is_skipped:
        text = _("%(time)s does not exist in %(zone)s: the clocks go forward then.")
        raise ValidationError(text % {"time": f"{shown:%Y-%m-%d %H:%M}", "zone": zone})
    return found


def zone_or_none(name: str) -> tzinfo | None:
    try:
        return zone_of(name) or UTC
    except ValueError:
        return None


def _text(name: str, longest: int, help_text: Any = "") -> forms.CharField:
    """Return a field for a line that programs read, with the label of the model's field."""
    field: Any = Schedule._meta.get_field(name)
    attributes = {"class": "vTextField", "autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
    widget, label = forms.TextInput(attrs=attributes), capfirst(field.verbose_name)
    return forms.CharField(label=label, required=False, max_length=longest, help_text=help_text, widget=widget)


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """All that a schedule says. ``ScheduleAdmin.get_form`` sets the attributes of the class.

    The times of the form are those of the clocks in the time zone of the schedule. ``payload_form`` is None if the user
    may not see the payload, or has not chosen a task yet.
    """

    # The tasks that the user may schedule, each with its description.
    tasks: ClassVar[Mapping[str, str]] = {}
    hides_payload: ClassVar[bool] = False
    # Whether the page has no fields for the payload, because of the project.
    keeps_payload: ClassVar[bool] = False
    database: ClassVar[str | None] = None

    task = forms.ChoiceField(label=gettext_lazy("Task"))
    kind = forms.ChoiceField(
        label=gettext_lazy("Runs by"),
        choices=[
            ("cron", gettext_lazy("Cron line")),
            ("interval", gettext_lazy("Interval")),
            ("run_at", gettext_lazy("Once")),
        ],
        widget=forms.RadioSelect,
    )
    cron = _text(
        "cron",
        MAX_CRON,
        gettext_lazy("Minute, hour, day, month and day of the week: 0 9 * * 1-5. Or @hourly, @daily, @weekly, …"),
    )
    interval = _text("interval", MAX_PHRASE, gettext_lazy("Such as 10 s, 90 minutes, 1h30m or 2 days."))
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
    missed_within = _text(
        "missed_within",
        MAX_PHRASE,
        gettext_lazy("How far back missed times are run, if all of them are: 2 days."),
    )
    queue_name = _text(
        "queue_name",
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
    job_key = _text("job_key", MAX_JOB_KEY_LENGTH, gettext_lazy("At most one job has a key."))
    description = forms.CharField(
        label=gettext_lazy("Description"),
        required=False,
        max_length=10_000,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
    )
    # The revision of the schedule that the form shows: a later one has other values.
    revision = forms.IntegerField(widget=forms.HiddenInput, required=False)

    class Meta:
        model = Schedule
        fields = (
            "name", "task", "description", "is_enabled", "cron", "interval", "run_at", "time_zone", "starts_at",
            "ends_at", "missed", "missed_within", "overlap", "queue_name", "priority", "max_attempts", "job_key",
        )  # fmt: skip
        help_texts: ClassVar[dict[str, Any]] = {
            "is_enabled": gettext_lazy("A schedule that is not enabled adds no jobs."),
            "missed": gettext_lazy("What happens to times at which no worker was running."),
            "overlap": gettext_lazy("What happens at a time at which the last run is not over."),
        }

    def __init__(self, data: Any = None, files: Any = None, **options: Any) -> None:
        stored = options.get("instance")
        self.stored = stored if stored is not None and stored.pk is not None else None
        # The values that the schedule has in the database: those of the instance are replaced by those of the form.
        names = [field.name for field in Schedule._meta.concrete_fields if field.editable and not field.primary_key]
        self.former = {} if self.stored is None else {name: _aware(getattr(stored, name)) for name in names}
        options["initial"] = {**self._initial(), **(options.get("initial") or {})}
        super().__init__(data, files, **options)
        # The payload has a form of its own.
        self.fields.pop("payload", None)
        self.is_stale = False
        # What prevents the payload from being shown in the other way.
        self.notice = ""
        self._name_tasks()
        # A project may have made the task read-only.
        self.chosen_task = str((self["task"].value() if "task" in self.fields else self.former.get("task")) or "")
        self.payload_form = self._make_payload_form()

    def _initial(self) -> dict[str, Any]:
        """Return what the form shows of the schedule, apart from the fields that show it as it is."""
        if self.stored is None:
            name = timezone.get_current_timezone_name()
            return {"kind": "cron", "time_zone": name if zone_or_none(name) else "UTC"}
        zone = zone_or_none(self.stored.time_zone) or UTC
        times = {name: self.former[name] and self.former[name].astimezone(zone) for name in TIMES}
        return {
            **{name: self.former[name] for name in ScheduleForm.Meta.fields},
            **{name: time and time.replace(tzinfo=None, microsecond=0) for name, time in times.items()},
            **{name: interval_text(self.former[name]) if self.former[name] else "" for name in PHRASES},
            "kind": next(name for name in WHEN if getattr(self.stored, name) is not None),
            "revision": self.stored.revision,
        }

    def _name_tasks(self) -> None:
        field: Any = self.fields.get("task")
        if field is None:
            return
        empty = [] if self.initial.get("task") in self.tasks else [("", _("Choose a task"))]
        field.choices = empty + [
            (name, _("%(task)s: %(description)s") % {"task": name, "description": text} if text else name)
            for name, text in self.tasks.items()
        ]
        field.error_messages["invalid_choice"] = _(
            "You may not schedule “%(value)s”. The task needs schedulable=True, and you need the permission "
            "to schedule it."
        )

    # The payload.

    @property
    def has_fields_of_task(self) -> bool:
        """Whether the payload fields that the browser has sent are those of the task that it has sent."""
        return self.is_bound and self.data.get(PAYLOAD_OF) == self.chosen_task

    @property
    def can_have_fields(self) -> bool:
        """Whether the payload of the task has fields, beside JSON."""
        shape = shape_of(self.chosen_task)
        return shape is not None and bool(shape.arguments)

    def _make_payload_form(self) -> PayloadForm | None:
        if self.hides_payload or self.keeps_payload or self.chosen_task not in self.tasks:
            return None
        if not self.has_fields_of_task or DESCRIBE in self.data:
            is_same_task = self.former.get("task") == self.chosen_task
            return payload_form(None, task=self.chosen_task, payload=self.former["payload"] if is_same_task else {})
        as_json = self.data.get(PAYLOAD_AS) == AS_JSON
        sent = payload_form(self.data, task=self.chosen_task, payload={}, as_json=as_json)
        return self._switched(sent) if SWITCH in self.data else sent

    def _switched(self, sent: PayloadForm) -> PayloadForm:
        """Return the form that shows what was sent in the other way; the same one if that is not possible."""
        is_valid, to_json = sent.is_valid(), self.data[SWITCH] == AS_JSON
        found = payload_form(None, task=self.chosen_task, payload=sent.payload if is_valid else {}, as_json=to_json)
        if to_json or (is_valid and not found.is_json):
            return found
        self.notice = _("The fields of the task cannot show this payload: it has errors, or other keys or values.")
        return sent

    # The check.

    @property
    def is_only_shown(self) -> bool:
        return self.is_bound and bool(self.data.keys() & {DESCRIBE, SWITCH, PREVIEW})

    def full_clean(self) -> None:
        if self.is_bound and self.data.keys() & {DESCRIBE, SWITCH}:
            self._errors, self.cleaned_data = ErrorDict(), {}
        else:
            super().full_clean()

    def is_valid(self) -> bool:
        is_valid = super().is_valid() and not self.is_only_shown and not self.is_stale
        return is_valid and (self.payload_form is None or self.payload_form.is_valid())

    def all_errors(self) -> dict[str, list[str]]:
        """Return the errors of both forms by the names of the fields in the page; "" for the whole form."""
        found = {"" if name == SEVERAL_FIELDS else name: texts for name, texts in self.errors.items()}
        if self.payload_form is not None and self.has_fields_of_task and not self.data.keys() & {DESCRIBE, SWITCH}:
            for name, texts in self.payload_form.errors.items():
                found[PREFIX if name == SEVERAL_FIELDS else f"{PREFIX}-{name}"] = texts
        return {name: [str(text) for text in texts] for name, texts in found.items()}

    def add_error(self, field: str | None, error: Any) -> None:
        """Add an error to a field, or to the form if the page does not have the field."""
        if field is None or field == SEVERAL_FIELDS or field in self.fields:
            super().add_error(None if field == SEVERAL_FIELDS else field, error)
            return
        known: Any = Schedule._meta
        label = _("Runs by") if field == "kind" else capfirst(known.get_field(field).verbose_name)
        super().add_error(None, [f"{label}: {text}" for text in ValidationError(error).messages])

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if Schedule.objects.using(self.database).exclude(pk=self.instance.pk).filter(name=name).exists():
            raise ValidationError(_("Another schedule has this name."))
        return name

    def validate_unique(self) -> None:
        """Do nothing: clean_name() asks the database that the page shows."""

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        # Fields that the project has made read-only.
        cleaned |= {name: value for name, value in self.initial.items() if name not in self.fields}
        self._fill_in(cleaned)
        now = datetime.now(UTC) if self._has_other_time(cleaned) else None
        for name, texts in errors_in(self._checked(cleaned), now=now).items():
            if name not in self.errors:
                self.add_error(name, [str(capfirst(text)) for text in texts])
        for name in PHRASES:
            cleaned[name] = self._interval(name, cleaned.get(name)) if name not in self.errors else None
        if self.payload_form is not None and not self.has_fields_of_task:
            self.add_error("task", _("The payload of another task has other fields: fill them in, then save."))
        if self.stored is not None and cleaned.get("revision") != self.stored.revision:
            # To save the form again is a decision of the user, who then has seen what was changed.
            self.is_stale = True
            sent: Any = self.data.copy()  # type: ignore[attr-defined]
            sent["revision"] = str(self.stored.revision)
            self.data = sent
        return cleaned

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if not self.errors and self.payload_form is not None and self.payload_form.is_valid():
            self.instance.payload = self.payload_form.payload
        if not self.errors and not self.fields.keys() >= {*ScheduleForm.Meta.fields}:
            # A field that the schedule needs may not be on the page.
            try:
                self.instance.validate_definition()
            except ValidationError as error:
                for name, texts in error.message_dict.items():
                    self.add_error(name, [str(capfirst(text)) for text in texts])

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
        zone = zone_or_none(cleaned.get("time_zone", "")) or UTC
        for name in TIMES:
            try:
                cleaned[name] = self._time(name, cleaned, zone)
            except ValidationError as error:
                self.add_error(name, error)

    def _time(self, name: str, cleaned: Mapping[str, Any], zone: tzinfo) -> datetime | None:
        shown: datetime | None = cleaned.get(name)
        stored: datetime | None = self.former.get(name)
        is_same_zone = self.stored is not None and cleaned.get("time_zone") == self.initial["time_zone"]
        if is_same_zone and stored is not None and shown == self.initial.get(name):
            # The form shows neither fractions of a second nor which of two equal hours it is.
            return stored
        return None if shown is None else moment(shown, zone)

    def _interval(self, name: str, text: str | None) -> timedelta | None:
        stored: timedelta | None = self.former.get(name)
        if text is None or (stored is not None and interval_text(stored) == text):
            return None if text is None else stored
        return parse_interval(text)

    def _has_other_time(self, cleaned: Mapping[str, Any]) -> bool:
        """Return whether the form has a time for a single run that is not the stored one, which may have passed."""
        return self.stored is None or cleaned.get("run_at") != self.former["run_at"]

    def _checked(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that are checked further: those without an error, and when the schedule fires."""
        kind = cleaned.get("kind") or ""
        values = {name: value for name, value in cleaned.items() if name not in self.errors and name not in WHEN}
        if kind and kind not in self.errors and cleaned[kind] is None:
            self.add_error(kind, _("This field is required."))
        if kind and kind not in self.errors:
            return {**values, kind: cleaned[kind]}
        return {**values, "run_at": SOME_TIME, "starts_at": None, "ends_at": None}

    def definition(self) -> Definition | None:
        """Return when the schedule is due; None if the form does not say it yet."""
        if self.errors.keys() & {*WHEN, *TIMES, "kind", "time_zone"} or not self.cleaned_data:
            return None
        values = {name: self.cleaned_data[name] for name in (*WHEN, "time_zone", "starts_at", "ends_at")}
        # A change of the interval or of its start begins anew.
        is_same = self.stored is not None and all(
            values[name] == self.former[name] for name in ("interval", "starts_at")
        )
        return Definition(**values, anchor_at=self.stored.anchor_at if is_same and self.stored is not None else None)

    def changed_names(self) -> list[str]:
        """Return the fields of the schedule that have another value than before."""
        return [name for name, value in self.former.items() if _aware(getattr(self.instance, name)) != value]


def _aware(value: Any) -> Any:
    return formatting.aware(value) if isinstance(value, datetime) else value
