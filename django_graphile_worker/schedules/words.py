"""Describes in words when a schedule is due: ``Every weekday at 09:00 (Europe/Berlin)``."""

from __future__ import annotations

from datetime import UTC, datetime

from django_graphile_worker.crontab.describe import WEEKDAYS, Phrases, describe_pattern
from django_graphile_worker.crontab.fields import HOUR, MONTH
from django_graphile_worker.crontab.patterns import Pattern, parse_pattern
from django_graphile_worker.schedules.definition import Definition
from django_graphile_worker.schedules.intervals import interval_in_words

_ENGLISH = Phrases()
_WORKDAYS = (1, 2, 3, 4, 5)
# More times of the day, days of the week or days of the month than these are described as ranges.
_MOST_TIMES = 6
_MOST_DAYS = 3


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
    if len(pattern.hours) * len(pattern.minutes) > _MOST_TIMES or pattern.hours == HOUR.all_values:
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
    if len(pattern.weekdays) > _MOST_DAYS:
        return None
    days = [phrases.say(WEEKDAYS[day]) for day in pattern.weekdays]
    return phrases.say("Every %(days)s at %(times)s", days=_listed(days, phrases), times=times)


def _monthly(pattern: Pattern, times: str, phrases: Phrases) -> str | None:
    if len(pattern.dates) > _MOST_DAYS:
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
