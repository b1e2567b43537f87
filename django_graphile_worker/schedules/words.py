"""Schedules as text: intervals as people write them, and sentences that say when a schedule is due.

Intervals are ``every 10 s`` or ``90 minutes``; a sentence is ``Every weekday at 09:00 (Europe/Berlin)``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from django_graphile_worker.crontab.describe import WEEKDAYS, Phrases, describe_pattern
from django_graphile_worker.crontab.patterns import HOUR, MONTH, SHORTHANDS, Pattern, parse_pattern
from django_graphile_worker.crontab.times import LONGEST_PERIOD
from django_graphile_worker.schedules.times import Definition

SHORTEST_INTERVAL = timedelta(seconds=1)
EXPECTED_INTERVAL = "an interval like 'every 10 s', '90 minutes', '1h30m' or '@every 2 days'"

_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SPELLINGS = {
    "w": ("w", "week", "weeks"),
    "d": ("d", "day", "days"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "s": ("s", "sec", "secs", "second", "seconds"),
}
_UNITS = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings}
_PREFIX = re.compile(r"@?every\b\s*")
_TERM = re.compile(r"(?P<number>[0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(?P<unit>[a-z]+)(?:\s*,\s*|\s+and\s+|\s*)")
# Up to this number, an interval has one unit: 90 minutes, 36 hours.
_MAX_OF_A_UNIT = 120
_ENGLISH = Phrases()
_WORKDAYS = (1, 2, 3, 4, 5)
# More times of the day, days of the week or days of the month than these are described as ranges.
_MAX_TIMES = 6
_MAX_DAYS = 3


def parse_interval(text: str) -> timedelta:
    """Return the interval that a phrase means; raise ValueError that says what was expected."""
    phrase = " ".join(text.lower().split())
    _refuse_cron(text, phrase)
    words = _PREFIX.sub("", phrase, count=1)
    if words != phrase and words in _UNITS:
        # every hour
        return timedelta(seconds=_SECONDS[_UNITS[words]])
    return _in_limits(_seconds(words, text), text)


def _refuse_cron(text: str, phrase: str) -> None:
    if phrase in SHORTHANDS or (len(phrase.split()) == 5 and phrase[0] in "*0123456789" and not _TERM.match(phrase)):
        raise ValueError(f"expected {EXPECTED_INTERVAL}, got {text!r}, which is a cron line.")


def _seconds(words: str, text: str) -> Fraction:
    total, position, seen = Fraction(0), 0, set()
    while position < len(words):
        term = _TERM.match(words, position)
        unit = _UNITS.get(term["unit"]) if term else None
        if term is None or unit is None or unit in seen:
            raise ValueError(_unreadable(words, text, term))
        seen.add(unit)
        total += Fraction(term["number"]) * _SECONDS[unit]
        position = term.end()
    if not seen or words.endswith((",", " and")):
        raise ValueError(_unreadable(words, text, None))
    return total


def _unreadable(words: str, text: str, term: re.Match[str] | None) -> str:
    problem = f"expected {EXPECTED_INTERVAL}, got {text!r}"
    if words.replace(".", "", 1).isdigit():
        return f"{problem}, which has no unit: s, m, h, d or w."
    if term is None:
        return f"{problem}."
    if term["unit"] in _UNITS:
        return f"{problem}, which has the unit {term['unit']!r} twice."
    reason = "which is not always as long: write days, or a cron line." if _is_of_calendar(term["unit"]) else None
    return f"{problem}, {reason}" if reason else f"{problem}; its unit {term['unit']!r} is none of s, m, h, d and w."


def _is_of_calendar(unit: str) -> bool:
    return unit in {"mo", "month", "months", "y", "yr", "year", "years"}


def _in_limits(seconds: Fraction, text: str) -> timedelta:
    if seconds < 1 or seconds > LONGEST_PERIOD.total_seconds():
        raise ValueError(f"expected an interval from 1 second to 100 years, got {text!r}.")
    return timedelta(microseconds=round(seconds * 1_000_000))


def interval_text(interval: timedelta) -> str:
    """Return the shortest phrase for an interval, which ``parse_interval()`` reads: ``1h30m``, ``10s``, ``1.5s``."""
    return "".join(f"{number}{unit}" for number, unit in _terms(interval)) or "0s"


def interval_in_words(interval: timedelta, phrases: Phrases = _ENGLISH) -> str:
    """Return an interval as a phrase: ``Every 10 seconds``, ``Every hour``, ``Every 90 minutes``."""
    terms = _terms(interval)
    if len(terms) == 1:
        return _every(*terms[0], phrases)
    smallest = _SECONDS[terms[-1][1]]
    if interval <= _MAX_OF_A_UNIT * timedelta(seconds=smallest) and not interval.microseconds:
        return _every(str(interval // timedelta(seconds=smallest)), terms[-1][1], phrases)
    return phrases.say("At intervals of %(duration)s", duration=" ".join(_duration(*each, phrases) for each in terms))


def _every(number: str, unit: str, phrases: Phrases) -> str:
    count = _plural_of(number)
    if unit == "w":
        return phrases.say_number("Every week", "Every %(number)s weeks", count, number=number)
    if unit == "d":
        return phrases.say_number("Every day", "Every %(number)s days", count, number=number)
    if unit == "h":
        return phrases.say_number("Every hour", "Every %(number)s hours", count, number=number)
    if unit == "m":
        return phrases.say_number("Every minute", "Every %(number)s minutes", count, number=number)
    return phrases.say_number("Every second", "Every %(number)s seconds", count, number=number)


def _duration(number: str, unit: str, phrases: Phrases) -> str:
    count = _plural_of(number)
    if unit == "d":
        return phrases.say_number("%(number)s day", "%(number)s days", count, number=number)
    if unit == "h":
        return phrases.say_number("%(number)s hour", "%(number)s hours", count, number=number)
    if unit == "m":
        return phrases.say_number("%(number)s minute", "%(number)s minutes", count, number=number)
    return phrases.say_number("%(number)s second", "%(number)s seconds", count, number=number)


def _plural_of(number: str) -> int:
    """Return a whole number with the same plural form: that of 1.5 is the form of 2."""
    return int(number) if number.isdigit() else 2


def _terms(interval: timedelta) -> list[tuple[str, str]]:
    """Return the numbers and units of an interval: 90 minutes are 1 hour and 30 minutes, 7 days are a week."""
    seconds, microseconds = divmod(interval // timedelta(microseconds=1), 1_000_000)
    if not microseconds and seconds and seconds % _SECONDS["w"] == 0:
        return [(str(seconds // _SECONDS["w"]), "w")]
    terms = []
    for unit in "dhms":
        number, seconds = divmod(seconds, _SECONDS[unit])
        fraction = f".{microseconds:06}".rstrip("0") if unit == "s" and microseconds else ""
        if number or fraction:
            terms.append((f"{number}{fraction}", unit))
    return terms


def in_words(definition: Definition, phrases: Phrases = _ENGLISH) -> str:
    """Describe when a schedule is due, with its time zone, its start and its end."""
    if definition.cron is not None:
        sentence = f"{pattern_in_words(parse_pattern(definition.cron), phrases)} ({definition.time_zone})"
    elif definition.interval is not None:
        sentence = interval_in_words(definition.interval, phrases)
    elif definition.run_at is not None:
        sentence = phrases.say("Once, at %(time)s", time=_time(definition.run_at, definition))
    else:
        sentence = phrases.say("Never")
    return _with_window(sentence, definition, phrases)


def _with_window(sentence: str, definition: Definition, phrases: Phrases) -> str:
    if definition.starts_at is not None:
        start = _time(definition.starts_at, definition)
        sentence = phrases.say("%(schedule)s, from %(time)s", schedule=sentence, time=start)
    if definition.ends_at is not None:
        end = _time(definition.ends_at, definition)
        sentence = phrases.say("%(schedule)s, until %(time)s", schedule=sentence, time=end)
    return sentence


def _time(time: datetime, definition: Definition) -> str:
    """Return a time on the clock of the schedule's zone, with seconds only if it has any."""
    local = time.astimezone(definition.zone or UTC)
    shown = f"{local:%Y-%m-%d %H:%M:%S}" if local.second else f"{local:%Y-%m-%d %H:%M}"
    return f"{shown} ({definition.time_zone})"


def pattern_in_words(pattern: Pattern, phrases: Phrases = _ENGLISH) -> str:
    """Describe a cron line as people say it, or field by field if it is an unusual one."""
    if pattern.months == MONTH.all_values:
        if len(pattern.minutes) == 1 and _is_every_hour_of_every_day(pattern):
            return _hourly(pattern.minutes[0], phrases)
        times = _times(pattern)
        if times is not None:
            usual = _daily(pattern, _listed(times, phrases), phrases)
            if usual:
                return usual
    return describe_pattern(pattern, phrases)


def _is_every_hour_of_every_day(pattern: Pattern) -> bool:
    return pattern.hours == HOUR.all_values and not pattern.restricts_dates and not pattern.restricts_weekdays


def _hourly(minute: int, phrases: Phrases) -> str:
    if minute == 0:
        return phrases.say("Every hour, on the hour")
    return phrases.say_number(
        "Every hour, %(number)s minute past", "Every hour, %(number)s minutes past", minute, number=minute
    )


def _times(pattern: Pattern) -> list[str] | None:
    """Return the times of the day, or None if they are too many to list."""
    if len(pattern.hours) * len(pattern.minutes) > _MAX_TIMES or pattern.hours == HOUR.all_values:
        return None
    return [f"{hour:02}:{minute:02}" for hour in pattern.hours for minute in pattern.minutes]


def _daily(pattern: Pattern, times: str, phrases: Phrases) -> str | None:
    if pattern.either_day:
        return None
    if pattern.restricts_dates:
        return _monthly(pattern, times, phrases)
    if not pattern.restricts_weekdays:
        return phrases.say("Every day at %(times)s", times=times)
    if pattern.weekdays == _WORKDAYS:
        return phrases.say("Every weekday at %(times)s", times=times)
    if len(pattern.weekdays) > _MAX_DAYS:
        return None
    days = [phrases.say(WEEKDAYS[day]) for day in pattern.weekdays]
    return phrases.say("Every %(days)s at %(times)s", days=_listed(days, phrases), times=times)


def _monthly(pattern: Pattern, times: str, phrases: Phrases) -> str | None:
    if len(pattern.dates) > _MAX_DAYS:
        return None
    days = _listed([str(date) for date in pattern.dates], phrases)
    return phrases.say_number(
        "Every month on day %(days)s at %(times)s",
        "Every month on days %(days)s at %(times)s",
        len(pattern.dates),
        days=days,
        times=times,
    )


def _listed(words: list[str], phrases: Phrases) -> str:
    if len(words) == 1:
        return words[0]
    return phrases.say("%(words)s and %(last)s", words=", ".join(words[:-1]), last=words[-1])
