"""Describes in words when an item is due, for readers who do not know crontab syntax."""

from __future__ import annotations

from collections.abc import Sequence

from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.patterns import (
    DATE,
    HOUR,
    MINUTE,
    MONTH,
    Field,
    Pattern,
    consecutive_ranges,
    parse_pattern,
)

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
# More clock times than this are described as minutes and hours.
_MAX_TIMES = 6


class Phrases:
    """The phrases in English. A subclass translates them: its catalogue has the texts of all calls below."""

    def say(self, text: str, /, **values: object) -> str:
        return text % values

    def say_number(self, one: str, many: str, number: int, /, **values: object) -> str:
        """Return a phrase that depends on a number."""
        return (one if number == 1 else many) % values


_ENGLISH = Phrases()


def describe(item: CronItem, phrases: Phrases = _ENGLISH) -> str:
    """Describe when an item is due: ``At 04:00, Monday to Friday (Europe/Paris)``."""
    if not isinstance(item.match, str):
        name = getattr(item.match, "__qualname__", None) or type(item.match).__qualname__
        sentence = phrases.say("Whenever %(name)s() returns true", name=name)
    else:
        sentence = describe_pattern(parse_pattern(item.match), phrases)
    return f"{sentence} ({item.zone.key if item.zone else 'UTC'})"


def describe_pattern(pattern: Pattern, phrases: Phrases = _ENGLISH) -> str:
    return _Description(phrases).of(pattern)


class _Description:
    """The description of a pattern in the phrases of a language."""

    def __init__(self, phrases: Phrases) -> None:
        self.say, self.say_number = phrases.say, phrases.say_number

    def of(self, pattern: Pattern) -> str:
        parts = [self._time(pattern), *self._day(pattern)]
        if pattern.months != MONTH.all_values:
            names = [(self._month(first), self._month(last)) for first, last in consecutive_ranges(pattern.months)]
            parts.append(self.say("in %(months)s", months=self._spans(names)))
        return ", ".join(parts)

    def _time(self, pattern: Pattern) -> str:
        times = [f"{hour:02}:{minute:02}" for hour in pattern.hours for minute in pattern.minutes[:7]]
        if pattern.hours != HOUR.all_values and len(times) <= _MAX_TIMES:
            return self.say("At %(times)s", times=self._list(times))
        minutes = self._minutes(pattern)
        if pattern.hours != HOUR.all_values:
            return self.say("%(minutes)s of %(hours)s", minutes=minutes, hours=self._hours(pattern))
        if _step(MINUTE, pattern.minutes):
            return minutes
        return self.say("%(minutes)s of every hour", minutes=minutes)

    def _minutes(self, pattern: Pattern) -> str:
        if step := _step(MINUTE, pattern.minutes):
            return self.say_number("Every minute", "Every %(number)s minutes", step, number=step)
        values = self._ranges(pattern.minutes)
        return self.say_number("At minute %(values)s", "At minutes %(values)s", len(pattern.minutes), values=values)

    def _hours(self, pattern: Pattern) -> str:
        if step := _step(HOUR, pattern.hours):
            return self.say_number("every hour", "every %(number)s hours", step, number=step)
        return self.say("hours %(values)s", values=self._ranges(pattern.hours))

    def _day(self, pattern: Pattern) -> list[str]:
        """Return at most one phrase: the days of the month, of the week, or either."""
        dates, weekdays = self._dates(pattern), self._weekdays(pattern)
        if dates and weekdays:
            return [self.say("%(dates)s or %(weekdays)s", dates=dates, weekdays=weekdays)]
        return [each for each in (dates, weekdays) if each]

    def _dates(self, pattern: Pattern) -> str:
        if not pattern.restricts_dates:
            return ""
        if step := _step(DATE, pattern.dates):
            return self.say_number(
                "every day of the month, from the 1st",
                "every %(number)s days of the month, from the 1st",
                step,
                number=step,
            )
        return self.say_number(
            "on day %(values)s of the month",
            "on days %(values)s of the month",
            len(pattern.dates),
            values=self._ranges(pattern.dates),
        )

    def _weekdays(self, pattern: Pattern) -> str:
        if not pattern.restricts_weekdays:
            return ""
        names = [(self._weekday(first), self._weekday(last)) for first, last in consecutive_ranges(pattern.weekdays)]
        return self.say("on %(weekdays)s", weekdays=self._spans(names))

    def _month(self, number: int) -> str:
        return self.say(_MONTHS[number - 1])

    def _weekday(self, number: int) -> str:
        return self.say(WEEKDAYS[number])

    def _ranges(self, values: tuple[int, ...]) -> str:
        return self._spans([(str(first), str(last)) for first, last in consecutive_ranges(values)])

    def _spans(self, spans: list[tuple[str, str]]) -> str:
        shown = [
            first if first == last else self.say("%(first)s to %(last)s", first=first, last=last)
            for first, last in spans
        ]
        return self._list(shown)

    def _list(self, words: list[str]) -> str:
        if len(words) == 1:
            return words[0]
        return self.say("%(words)s and %(last)s", words=", ".join(words[:-1]), last=words[-1])


def _step(kind: Field, values: Sequence[int]) -> int:
    """Return 5 if the values are ``*/5``, 1 if they are all, else 0."""
    if tuple(values) == kind.all_values:
        return 1
    if len(values) < 3:
        return 0
    step = values[1] - values[0]
    return step if tuple(values) == tuple(range(kind.smallest, kind.largest + 1, step)) else 0
