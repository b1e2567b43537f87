"""Time phrases, and time zones at their changes."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.crontab import CronItem, occurrences
from django_graphile_worker.crontab.patterns import parse_pattern
from django_graphile_worker.crontab.times import format_time_phrase, parse_time_phrase
from tests.support import crontabs


@given(st.integers(0, 36_500 * 86_400))
def test_a_period_survives_being_written(seconds: int) -> None:
    period = timedelta(seconds=seconds)
    assert parse_time_phrase(format_time_phrase(period)) == period


@pytest.mark.parametrize("period", [timedelta(microseconds=1), timedelta(seconds=-1)])
def test_a_period_without_a_phrase_is_refused(period: timedelta) -> None:
    with pytest.raises(ValueError, match="expected a period of whole seconds"):
        format_time_phrase(period)


MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# Each probes something else at a transition: all minutes, whole hours, times inside usual gaps, one date.
PATTERNS = ("* * * * *", "0 * * * *", "30 0-4 * * *", "15,45 */2 1-15 * 0", "59 23 * * *")
ALL_ZONES = sorted(zoneinfo.available_timezones() - {"localtime"})


def fired(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Brute force: walk every UTC minute, note each local minute when it is first met or first passed."""
    met: set[datetime] = set()
    previous: datetime | None = None
    instant = start
    while instant <= end:
        local = instant.astimezone(zone).replace(tzinfo=None, fold=0)
        skipped = local if previous is None else previous + MINUTE
        while skipped < local:
            if skipped not in met:
                met.add(skipped)
                yield instant, skipped
            skipped += MINUTE
        if local not in met:
            met.add(local)
            yield instant, local
        previous = local
        instant += MINUTE


def check(zone: ZoneInfo, patterns: tuple[str, ...], start: datetime, end: datetime, lead: timedelta) -> None:
    """Compare with brute force over (start, end]; ``lead`` lets it see what came before."""
    firings = [pair for pair in fired(zone, start - lead, end) if pair[0] > start]
    for text in patterns:
        item = CronItem("task", text, time_zone=zone.key)
        pattern = parse_pattern(text)
        expected = list(dict.fromkeys(instant for instant, local in firings if pattern.matches(local)))
        assert list(occurrences(item, start, end)) == expected, (zone.key, text, start)


def transitions(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    """The first UTC minute after each change of offset, found by bisection between daily samples."""
    early = start
    while early < end:
        late = early + DAY
        if early.astimezone(zone).utcoffset() != late.astimezone(zone).utcoffset():
            low, high = early, late
            while high - low > MINUTE:
                middle = low + (high - low) // MINUTE // 2 * MINUTE
                unchanged = middle.astimezone(zone).utcoffset() == early.astimezone(zone).utcoffset()
                low, high = (middle, high) if unchanged else (low, middle)
            yield high
        early = late


def test_every_zone_fires_each_local_minute_once_around_every_transition() -> None:
    start, end = datetime(2025, 6, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
    # Zones with the same offsets around the same transition differ in nothing else.
    checked = set()
    for zone in map(ZoneInfo, ALL_ZONES):
        for transition in transitions(zone, start, end):
            offsets = [moment.astimezone(zone).utcoffset() for moment in (transition - MINUTE, transition)]
            if (transition, *offsets) not in checked:
                checked.add((transition, *offsets))
                check(zone, PATTERNS, transition - 2 * HOUR, transition + 3 * HOUR, lead=4 * HOUR)
    assert len(checked) > 30


@pytest.mark.parametrize(
    ("key", "year", "expected"),
    [
        ("Pacific/Apia", 2011, 3),  # skipped a whole day, 30 December
        ("Australia/Lord_Howe", 2026, 2),  # half an hour of daylight saving
        ("Antarctica/Troll", 2026, 2),  # two hours
        ("America/St_Johns", 2010, 2),  # changed at one minute past midnight
        ("Africa/Casablanca", 2026, 2),  # the other way round, around Ramadan
        ("Asia/Pyongyang", 2018, 1),  # half an hour, once
        ("America/Caracas", 2007, 1),
        ("Pacific/Kwajalein", 1993, 1),  # crossed the date line
        ("Antarctica/Casey", 2023, 1),
    ],
)
def test_unusual_transitions_follow_the_same_rule(key: str, year: int, expected: int) -> None:
    zone = ZoneInfo(key)
    found = list(transitions(zone, datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)))
    assert len(found) >= expected
    for transition in found:
        check(zone, PATTERNS, transition - 26 * HOUR, transition + 26 * HOUR, lead=4 * HOUR)


@given(
    st.sampled_from(ALL_ZONES),
    crontabs.patterns(),
    st.datetimes(datetime(1975, 1, 1), datetime(2037, 1, 1)),  # noqa: DTZ001
)
def test_any_pattern_in_any_zone_at_any_time_follows_the_same_rule(key: str, pattern: str, moment: datetime) -> None:
    start = moment.replace(second=0, microsecond=0, tzinfo=UTC)
    check(ZoneInfo(key), (pattern,), start, start + 30 * HOUR, lead=26 * HOUR)


@given(crontabs.patterns(), st.sampled_from(["Europe/Paris", "America/New_York", "Australia/Lord_Howe"]))
def test_asking_minute_by_minute_finds_the_same_times_as_looking_ahead(pattern: str, key: str) -> None:
    item = CronItem("pattern", pattern, time_zone=key)
    as_callable = CronItem("callable", lambda local: parse_pattern(pattern).matches(local), time_zone=key)
    for transition in transitions(ZoneInfo(key), datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)):
        start, end = transition - 2 * HOUR, transition + 3 * HOUR
        expected = list(occurrences(item, start, end))
        assert list(occurrences(as_callable, start, end)) == expected
