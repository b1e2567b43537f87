"""The form of the action Reschedule, with times to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django import forms
from django.utils import formats
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_graphile_worker.admin.formatting import EMPTY_VALUE
from django_graphile_worker.admin.jobs.forms import RunAtField, number_field, time_zone_help
from django_graphile_worker.job_options import LARGEST_MAX_ATTEMPTS, LARGEST_PRIORITY, SMALLEST_PRIORITY

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
            self.add_error("preset", _("Expected a time from the list or an exact time, got both."))
        elif preset:
            cleaned["run_at"] = PRESETS[preset](localtime())
        if not self.errors and all(value is None for value in cleaned.values()):
            raise forms.ValidationError(_("Expected at least one change, got none."))
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
