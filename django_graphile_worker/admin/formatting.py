"""Formats times, durations and numbers for the pages."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_graphile_worker.sql.inspection.counts import Count

# Inspection queries return these times for -infinity and infinity, which Python cannot represent.
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)
EMPTY_VALUE = "\u2013"


def duration(seconds: float | None, units: int = 2) -> str:
    """Return a duration in at most `units` units: 4 min 12 s, 350 ms."""
    if seconds is None:
        return EMPTY_VALUE
    seconds = max(seconds, 0.0)
    if seconds < 0.0005:
        return f"0 {_millisecond()}" if seconds == 0 else f"<1 {_millisecond()}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} {_millisecond()}"
    if seconds < 10:
        return f"{seconds:.1f} {_second()}"
    parts: list[str] = []
    rest = round(seconds)
    for size, unit in _units():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:units])


def _units() -> list[tuple[int, str]]:
    return [
        (86400, pgettext("unit", "d")),
        (3600, pgettext("unit", "h")),
        (60, pgettext("unit", "min")),
        (1, _second()),
    ]


def _second() -> str:
    return pgettext("unit", "s")


def _millisecond() -> str:
    return pgettext("unit", "ms")


def relative_time(value: datetime | None, now: datetime | None = None) -> SafeString | str:
    """Return a time as its distance from now, in an element whose title is the exact time."""
    if value is None:
        return EMPTY_VALUE
    if value >= LATEST:
        return _("never (infinity)")
    if value <= EARLIEST:
        return _("always (-infinity)")
    now = now or timezone.now()
    return format_html(
        '<time datetime="{}" title="{}" dir="auto">{}</time>',
        value.isoformat(),
        exact_time(value),
        _distance(value, now),
    )


def _distance(value: datetime, now: datetime) -> str:
    seconds = (now - value).total_seconds()
    if abs(seconds) < 1:
        return _("now")
    if seconds > 0:
        return _("%(duration)s ago") % {"duration": duration(seconds)}
    return _("in %(duration)s") % {"duration": duration(-seconds)}


def exact_time(value: datetime | None) -> str:
    """Return a time in the date format of the site, with seconds and time zone."""
    if value is None or not EARLIEST < value < LATEST:
        return str(relative_time(value))
    local = timezone.localtime(value) if timezone.is_aware(value) else value
    return f"{formats.date_format(local, 'DATE_FORMAT')} {local:%H:%M:%S} {local:%Z}".strip()


def count(value: Count | None) -> str:
    """Return a count with separators, and a plus sign when counting stopped before the end."""
    if value is None:
        return ""
    return f"{value.number:,}+" if value.is_more else f"{value.number:,}"


def capped_number(number: int, most: int) -> str:
    """Return a number that was counted up to `most` + 1: ``1,000+`` if it is larger than `most`."""
    return f"{most:,}+" if number > most else f"{number:,}"


def byte_size(number: float) -> str:
    """Return a number of bytes in the largest unit that fits."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TB"


def job_count(number: int) -> str:
    return ngettext("%(number)s job", "%(number)s jobs", number) % {"number": f"{number:,}"}
