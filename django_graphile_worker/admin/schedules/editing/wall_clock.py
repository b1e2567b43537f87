"""Time zones of a form, and times that are in the time zone which another field of the form names."""

from __future__ import annotations

import functools
import zoneinfo
from datetime import UTC, datetime, tzinfo
from typing import Any

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.jobs.forms import DateTimeLocalInput


class TimeZoneInput(forms.TextInput):
    """A text field that completes the names of time zones."""

    list_id = "gw-time-zones"

    def __init__(self) -> None:
        super().__init__(attrs={"list": self.list_id, "autocomplete": "off", "spellcheck": "false"})

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        field = super().render(name, value, attrs, renderer)
        return format_html('{}<datalist id="{}">{}</datalist>', field, self.list_id, _options())


@functools.cache
def _options() -> SafeString:
    return format_html_join("", '<option value="{}"></option>', ((each,) for each in time_zones()))


@functools.cache
def time_zones() -> tuple[str, ...]:
    """Return the time zones of the world; names without a region are left out, but for UTC."""
    known = zoneinfo.available_timezones()
    return ("UTC", *sorted(name for name in known if "/" in name and not name.startswith(("Etc/", "SystemV/"))))


class WallClockField(forms.CharField):
    """A date and time as the clocks show it; it is aware only if the user has typed an offset."""

    widget = DateTimeLocalInput

    def prepare_value(self, value: Any) -> Any:
        return value

    def to_python(self, value: Any) -> Any:
        text = str(super().to_python(value) or "").strip()
        if not text:
            return None
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            message = _("Expected a date and time like %(example)s, got “%(text)s”.")
            raise forms.ValidationError(message % {"example": "2026-05-01 09:00", "text": text[:40]}) from None


def wall_clock(time: datetime | None, zone: tzinfo) -> datetime | None:
    """Return what the clocks of a zone show at a time, to the second."""
    return None if time is None else formatting.aware(time).astimezone(zone).replace(tzinfo=None, microsecond=0)


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
        raise forms.ValidationError(_("Expected a year from 2 to 9998, got %(year)s.") % {"year": shown.year}) from None
    if is_skipped:
        values = {"time": f"{shown:%Y-%m-%d %H:%M}", "zone": zone}
        raise forms.ValidationError(
            _("Expected a time that the clocks show, got %(time)s, which %(zone)s skips: the clocks go forward then.")
            % values
        )
    return found
