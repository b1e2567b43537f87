"""The form that pauses schedules: until when."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin.jobs.forms import DateTimeLocalInput, time_zone_help

UNTIL_RESUMED, AT = "resumed", "at"
PRESETS = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}


class PauseScheduleForm(forms.Form):
    """A length, or a date and time. ``cleaned_data["until"]`` is the end of the pause; None without an end."""

    length = forms.ChoiceField(
        label=gettext_lazy("Pause"),
        choices=[
            (UNTIL_RESUMED, gettext_lazy("until someone resumes it")),
            ("hour", gettext_lazy("for an hour")),
            ("day", gettext_lazy("for a day")),
            ("week", gettext_lazy("for a week")),
            (AT, gettext_lazy("until the time below")),
        ],
        initial=UNTIL_RESUMED,
    )
    until = forms.DateTimeField(
        label=gettext_lazy("Until"), required=False, widget=DateTimeLocalInput, help_text=time_zone_help()
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned
        length, until = cleaned["length"], cleaned.get("until")
        # A time that was filled in means that time, whatever the choice above it says.
        if length == AT or until is not None:
            cleaned["until"] = self._future(until)
        else:
            cleaned["until"] = timezone.now() + PRESETS[length] if length in PRESETS else None
        return cleaned

    def _future(self, until: datetime | None) -> datetime | None:
        if until is None:
            self.add_error("until", _("Expected the time at which the pause ends, got none."))
        elif until <= timezone.now():
            self.add_error("until", _("Expected a time in the future, got a time that is past."))
        return until
