"""Formats times, durations and numbers for the pages, in the language, the formats and the time zone of the user.

Ids, and values in URLs and form fields, are not formatted: a program reads them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo

from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import get_language, ngettext, pgettext
from django.utils.translation import gettext as _

from django_graphile_worker.sql.inspection.job_list import Count

# Inspection queries return these times for -infinity and infinity, which Python cannot represent.
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)
EMPTY_VALUE = "\u2013"

MINUTE, HOUR, DAY = 60, 3_600, 86_400
# The characters for the minute in a format of Django, alone or as a part of the time in words ("2:09 p.m.").
_MINUTE_IN_FORMAT = re.compile(r"(?<!\\)(?:(?P<words>P)|i)")


def number(value: float, decimals: int = 0) -> str:
    """Return a number with the separators of the user's language: 1,234.5 in English, 1.234,5 in German."""
    return formats.number_format(f"{value:.{decimals}f}", use_l10n=True, force_grouping=True)


def part(value: float, whole: float) -> str:
    return f"{number(value)} / {number(whole)}"


def percentage(share: float) -> str:
    """Return a part of 1 in percent."""
    percent = share * 100
    if 0 < percent < 1:
        return _("<%(number)s%%") % {"number": number(1)}
    return _("%(number)s%%") % {"number": number(percent)}


def count(value: Count | None) -> str:
    """Return a count with separators. If counting stopped before the end, a round number that is certain: ``900+``."""
    if value is None:
        return ""
    if not value.is_more:
        return number(value.number)
    unit = 10 ** max(len(str(value.number)) - 1, 0)
    return f"{number(value.number // unit * unit)}+"


def capped_number(value: int, most: int) -> str:
    """Return a number that was counted up to `most` + 1: ``1,000+`` if it is larger than `most`."""
    return f"{number(most)}+" if value > most else number(value)


def versions(numbers: Mapping[str, int]) -> str:
    """Return the versions of workers with the number of each; empty for a single version."""
    if len(numbers) < 2:
        return ""
    named = [
        ngettext("%(version)s (%(number)s worker)", "%(version)s (%(number)s workers)", each)
        % {"version": version, "number": number(each)}
        for version, each in numbers.items()
    ]
    return _("%(number)s versions: %(versions)s") % {"number": number(len(numbers)), "versions": ", ".join(named)}


def job_count(value: int) -> str:
    return ngettext("%(number)s job", "%(number)s jobs", value) % {"number": number(value)}


def byte_size(size: float) -> str:
    """Return a number of bytes in the largest unit that fits."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{number(size, 0 if unit == 'B' else 1)} {unit}"
        size /= 1024
    return f"{number(size, 1)} TB"


def duration(seconds: float | None, units: int = 2) -> str:
    """Return a duration in at most `units` adjacent units: 350 ms, 2.4 s, 4 min 12 s, 9 h, 2 d 5 h."""
    if seconds is None:
        return EMPTY_VALUE
    seconds = max(seconds, 0.0)
    if seconds < 0.0005:
        return f"{'<' if seconds else ''}{number(1 if seconds else 0)} {_millisecond()}"
    if seconds < 0.9995:
        return f"{number(seconds * 1000)} {_millisecond()}"
    if seconds < 9.95:
        return f"{number(seconds, 1)} {_second()}"
    return _in_units(round(seconds), units)


def _in_units(seconds: int, units: int) -> str:
    """Return whole seconds in their largest unit, and in the next smaller unit if that is not zero."""
    sizes = [(DAY, pgettext("unit", "d")), (HOUR, pgettext("unit", "h")), (MINUTE, pgettext("unit", "min"))]
    following = [*sizes[1:], (1, _second())]
    for (size, unit), (smaller, smaller_unit) in zip(sizes, following, strict=True):
        if seconds >= size:
            whole, rest = divmod(seconds // smaller, size // smaller)
            shown = f"{number(whole)} {unit}"
            return f"{shown} {number(rest)} {smaller_unit}" if rest and units > 1 else shown
    return f"{number(seconds)} {_second()}"


def _second() -> str:
    return pgettext("unit", "s")


def _millisecond() -> str:
    return pgettext("unit", "ms")


def relative_time(value: datetime | None, now: datetime | None = None) -> SafeString | str:
    """Return a time as its distance from now, in an element whose title is the exact time."""
    if value is None:
        return EMPTY_VALUE
    if aware(value) >= LATEST:
        return _("never (infinity)")
    if aware(value) <= EARLIEST:
        return _("always (-infinity)")
    now = now or timezone.now()
    return format_html(
        '<time datetime="{}" title="{}" dir="auto">{}</time>',
        value.isoformat(),
        exact_time(value),
        _distance(value, now),
    )


def _distance(value: datetime, now: datetime) -> str:
    seconds = (aware(now) - aware(value)).total_seconds()
    if abs(seconds) < 1:
        return _("now")
    if seconds > 0:
        return _("%(duration)s ago") % {"duration": duration(seconds)}
    return _("in %(duration)s") % {"duration": duration(-seconds)}


def exact_time(value: datetime | None, zone: tzinfo | None = None) -> str:
    """Return a time in the format of the user's language and in the current time zone, or in `zone`, which is named.

    Seconds are shown unless they are zero.
    """
    if value is None or not EARLIEST < aware(value) < LATEST:
        return str(relative_time(value))
    local = _local(value, zone)
    format_ = formats.get_format("DATETIME_FORMAT", use_l10n=True)
    return _formatted(local.replace(tzinfo=None, fold=0), local.tzinfo, local.fold, format_, get_language())


# A page that is refreshed shows a thousand times of runs again. Equal times of two zones are different keys.
@functools.lru_cache(maxsize=4096)
def _formatted(wall_clock: datetime, zone: tzinfo | None, fold: int, format_: str, language: str | None) -> str:
    local = wall_clock.replace(tzinfo=zone, fold=fold)
    text = formats.date_format(local, _with_seconds(format_) if local.second else format_)
    return f"{text} {local:%Z}".strip()


def aware(value: datetime) -> datetime:
    """Return a time that can be compared with others; with ``USE_TZ = False`` some times have no time zone."""
    return value if timezone.is_aware(value) else value.replace(tzinfo=timezone.get_default_timezone())


def _local(value: datetime, zone: tzinfo | None = None) -> datetime:
    """Return a time in a time zone; a time without one is in the time zone of the project."""
    return timezone.localtime(value, zone) if timezone.is_aware(value) else value


def _with_seconds(format_: str) -> str:
    """Return a format of Django with seconds after the minutes; no language has such a format of its own."""
    return _MINUTE_IN_FORMAT.sub(lambda found: "g:i:s a" if found["words"] else "i:s", format_)


def clock_time(value: datetime) -> str:
    """Return the time of day of a time, in the format of the user's language and in the current time zone."""
    return formats.time_format(_local(value), "TIME_FORMAT", use_l10n=True)


def day(value: datetime) -> str:
    """Return the day of a time, without the year, in the format of the user's language and the current time zone."""
    return formats.date_format(_local(value), "MONTH_DAY_FORMAT", use_l10n=True)


def in_both_zones(value: datetime, zone: tzinfo) -> str:
    """Return a time in the current time zone, and also in `zone` if its clocks show another time.

    The day is repeated only if it is another day in `zone`.
    """
    shown, here, there = exact_time(value), _local(value), _local(value, zone)
    if timezone.is_naive(value) or here.utcoffset() == there.utcoffset():
        return shown
    is_same_day = here.date() == there.date() and not there.second
    clock = formats.time_format(there, "TIME_FORMAT", use_l10n=True)
    other = f"{clock} {there:%Z}" if is_same_day else exact_time(value, zone)
    return _("%(time)s (%(other)s)") % {"time": shown, "other": other}
