"""Times, durations and numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_graphile_worker.sql.inspection.counts import Count

# What sql.reading makes of infinities.
FIRST = datetime(1, 1, 2, tzinfo=UTC)
LAST = datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)
NOTHING = "\u2013"


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


def duration(seconds: float | None, units: int = 2) -> str:
    """Two units at most: 4 min 12 s, 350 ms."""
    if seconds is None:
        return NOTHING
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


def moment(value: datetime | None, now: datetime | None = None) -> SafeString | str:
    """A time as its distance from now, with the exact time for whoever wants it."""
    if value is None:
        return NOTHING
    if value >= LAST:
        return _("never (infinity)")
    if value <= FIRST:
        return _("always (-infinity)")
    now = now or timezone.now()
    return format_html(
        '<time datetime="{}" title="{}" dir="auto">{}</time>', value.isoformat(), exact(value), distance(value, now)
    )


def distance(value: datetime, now: datetime) -> str:
    seconds = (now - value).total_seconds()
    if abs(seconds) < 1:
        return _("now")
    if seconds > 0:
        return _("%(duration)s ago") % {"duration": duration(seconds)}
    return _("in %(duration)s") % {"duration": duration(-seconds)}


def exact(value: datetime | None) -> str:
    """The time in the site's own way, with seconds and zone."""
    if value is None or not FIRST < value < LAST:
        return str(moment(value))
    local = timezone.localtime(value) if timezone.is_aware(value) else value
    return f"{formats.date_format(local, 'DATE_FORMAT')} {local:%H:%M:%S} {local:%Z}".strip()


def count(value: Count | None) -> str:
    """A number with its separators, and a plus when there are more."""
    if value is None:
        return ""
    return f"{value.number:,}+" if value.is_more else f"{value.number:,}"


def capped(number: int, most: int) -> str:
    """A number that was counted no further than one beyond `most`."""
    return f"{most:,}+" if number > most else f"{number:,}"


def size(count_of_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count_of_bytes < 1000:
            return f"{count_of_bytes:.0f} {unit}" if unit == "B" else f"{count_of_bytes:.1f} {unit}"
        count_of_bytes /= 1024
    return f"{count_of_bytes:.1f} TB"


def jobs(number: int) -> str:
    return ngettext("%(number)s job", "%(number)s jobs", number) % {"number": f"{number:,}"}
