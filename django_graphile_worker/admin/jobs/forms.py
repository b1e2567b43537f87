"""The forms of the actions on jobs, and the fields of jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django import forms
from django.utils import formats, timezone
from django.utils.functional import lazy
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_graphile_worker import conf
from django_graphile_worker.admin.formatting import EMPTY_VALUE
from django_graphile_worker.exceptions import GraphileWorkerError, PayloadError
from django_graphile_worker.job_options import (
    LARGEST_MAX_ATTEMPTS,
    LARGEST_PRIORITY,
    SMALLEST_PRIORITY,
    valid_run_at,
)
from django_graphile_worker.payloads import encode


class DateTimeLocalInput(forms.DateTimeInput):
    """The date and time picker of the browser."""

    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__(attrs={"step": "1"}, format="%Y-%m-%dT%H:%M:%S")


class RunAtField(forms.DateTimeField):
    """A date and time that a job can run at."""

    widget = DateTimeLocalInput

    def clean(self, value: Any) -> Any:
        run_at = super().clean(value)
        try:
            return valid_run_at(run_at)
        except GraphileWorkerError as error:
            raise forms.ValidationError(str(error)) from None


def _time_zone_help() -> str:
    """Return the time zone of the field: the picker shows none, and the user's may differ from the site's."""
    values = {"zone": timezone.get_current_timezone_name(), "time": f"{timezone.localtime():%H:%M}"}
    return _("In the time zone %(zone)s, where it is %(time)s now.") % values


time_zone_help = lazy(_time_zone_help, str)


def number_field(label: Any, smallest: int, largest: int, **options: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=smallest, max_value=largest, **options)


class FailForm(forms.Form):
    """The reason for failing jobs permanently."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=2_000,
        help_text=gettext_lazy("Added to the last error."),
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


class CancelForm(forms.Form):
    """The reason for cancelling jobs."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=2_000,
        help_text=gettext_lazy("Kept with your name in the results and the history."),
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


class PayloadField(forms.CharField):
    """JSON text, which is decoded."""

    widget = forms.Textarea(attrs={"rows": 10, "cols": 80, "class": "gw-code", "spellcheck": "false"})

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            payload = json.loads(text)
            encode(payload, max_size=conf.current().max_payload_size)
        except json.JSONDecodeError as error:
            raise forms.ValidationError(_invalid_json(text, error)) from None
        except PayloadError as error:
            raise forms.ValidationError(str(error)) from None
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(_("This JSON cannot be read back: %s.") % error) from None
        return payload


def _invalid_json(text: str, error: json.JSONDecodeError) -> str:
    return _("This is not JSON. At %(got)s in line %(line)s, column %(column)s: %(problem)s.") % {
        "got": repr(text[error.pos : error.pos + 20]) if error.pos < len(text) else _("the end"),
        "line": error.lineno,
        "column": error.colno,
        "problem": error.msg,
    }


class EditForm(forms.Form):
    """The payload of a failed job that is retried."""

    payload = PayloadField(
        label=gettext_lazy("Payload"), required=False, strip=False, help_text=gettext_lazy("JSON. Default: {}")
    )
    # The revision of the job that the form shows: a later one has another payload.
    revision = forms.IntegerField(widget=forms.HiddenInput)

    def clean_payload(self) -> Any:
        payload = self.cleaned_data["payload"]
        return {} if payload is None and not self.data.get("payload", "").strip() else payload


MORNING = time(9)
MONDAY = 0


def _in(**duration: float) -> Callable[[datetime], datetime]:
    # In UTC: in the time zone of the user, the clock may change meanwhile.
    return lambda now: (now.astimezone(UTC) + timedelta(**duration)).replace(microsecond=0)


def _tomorrow(now: datetime) -> datetime:
    return datetime.combine(now.date() + timedelta(days=1), MORNING, now.tzinfo)


def _next_monday(now: datetime) -> datetime:
    days = (MONDAY - now.weekday() - 1) % 7 + 1
    return datetime.combine(now.date() + timedelta(days=days), MORNING, now.tzinfo)


# By the value of the field: the time, from the current time in the time zone of the user.
PRESETS: Mapping[str, Callable[[datetime], datetime]] = {
    "5m": _in(minutes=5),
    "1h": _in(hours=1),
    "tomorrow": _tomorrow,
    "monday": _next_monday,
}


def preset_choices() -> list[tuple[str, str]]:
    """Return the times to choose from, in the language and the formats of the user."""
    morning = {"time": formats.time_format(MORNING, "TIME_FORMAT")}
    texts = {
        "5m": ngettext("in %(number)s minute", "in %(number)s minutes", 5) % {"number": 5},
        "1h": ngettext("in %(number)s hour", "in %(number)s hours", 1) % {"number": 1},
        "tomorrow": _("tomorrow at %(time)s") % morning,
        "monday": _("next Monday at %(time)s") % morning,
    }
    return [("", EMPTY_VALUE), *((name, texts[name]) for name in PRESETS)]


class RescheduleForm(forms.Form):
    """The new time, priority and attempts of jobs."""

    preset = forms.ChoiceField(label=gettext_lazy("When"), required=False, choices=preset_choices)
    run_at = RunAtField(label=gettext_lazy("Run at"), required=False, help_text=time_zone_help())
    priority = number_field(
        gettext_lazy("Priority"),
        SMALLEST_PRIORITY,
        LARGEST_PRIORITY,
        help_text=gettext_lazy("Lower numbers run first."),
    )
    attempts = number_field(
        gettext_lazy("Attempts so far"),
        0,
        LARGEST_MAX_ATTEMPTS,
        help_text=gettext_lazy("Empty: a failed job that gets a time also gets all its attempts again."),
    )
    max_attempts = number_field(gettext_lazy("Maximum attempts"), 1, LARGEST_MAX_ATTEMPTS)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        preset = cleaned.pop("preset", "")
        if preset and cleaned.get("run_at"):
            self.add_error("preset", _("Choose a time from the list or write an exact time, not both."))
        elif preset:
            cleaned["run_at"] = PRESETS[preset](localtime())
        if not self.errors and all(value is None for value in cleaned.values()):
            raise forms.ValidationError(_("Change at least one value."))
        return cleaned


def fields_to_send_again(form: forms.Form | None) -> list[tuple[str, str]]:
    """Return the fields of a valid form for the requests that continue its action.

    A time from the list is sent as the time that it meant at first, so that all jobs of the action get the same.
    """
    if form is None:
        return []
    sent = {name: form.data[name] for name in form.fields if name in form.data}
    if sent.get("preset"):
        sent |= {"preset": "", "run_at": form.cleaned_data["run_at"].isoformat()}
    return list(sent.items())
