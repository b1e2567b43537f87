from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from django_graphile_worker.schedules.definition import Definition
from django_graphile_worker.schedules.policies import (
    MOST_COUNTED,
    MOST_TICKS,
    ON_TIME,
    Decision,
    GivenUp,
    Tick,
    decide,
)
from django_graphile_worker.schedules.times import next_time
from tests.support import schedules

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MINUTELY = Definition(cron="* * * * *")


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-16T{text}").replace(tzinfo=UTC)


def test_tick__that_is_due_gets_its_job_whatever_the_policy() -> None:
    now = at("10:00:30")
    expected = Decision((Tick(at("10:00"), is_late=False),), at("10:01"))
    assert decide(MINUTELY, first=at("10:00"), now=now, missed="skip") == expected
    assert decide(MINUTELY, first=at("10:00"), now=now, missed="once") == expected
    assert decide(MINUTELY, first=at("10:00"), now=now, missed="all", missed_within=timedelta(seconds=1)) == expected


def test_tick__is_on_time_up_to_a_minute() -> None:
    hourly = Definition(cron="@hourly")
    assert decide(hourly, first=at("10:00"), now=at("10:01")).ticks == (Tick(at("10:00"), is_late=False),)
    late = decide(hourly, first=at("10:00"), now=at("10:01") + timedelta(microseconds=1))
    assert late == Decision((), at("11:00"), GivenUp(1, at("10:00"), at("10:00")))


def test_skip__gives_up_all_but_a_tick_that_is_on_time() -> None:
    decision = decide(MINUTELY, first=at("10:00"), now=at("10:05:30"), missed="skip")
    assert decision.ticks == (Tick(at("10:05"), is_late=False),)
    assert decision.given_up == GivenUp(5, at("10:00"), at("10:04"))
    assert decision.next_at == at("10:06")


def test_once__fires_the_latest_however_late_it_is() -> None:
    hourly = Definition(cron="@hourly")
    decision = decide(hourly, first=at("10:00"), now=at("14:30"), missed="once")
    assert decision.ticks == (Tick(at("14:00"), is_late=True),)
    assert decision.given_up == GivenUp(4, at("10:00"), at("13:00"))
    assert decision.next_at == at("15:00")


def test_all__fires_what_is_within_its_period() -> None:
    hourly = Definition(cron="@hourly")
    decision = decide(hourly, first=at("08:00"), now=at("12:00:30"), missed="all", missed_within=2 * HOUR)
    assert decision.ticks == (Tick(at("11:00"), is_late=True), Tick(at("12:00"), is_late=False))
    assert decision.given_up == GivenUp(3, at("08:00"), at("10:00"))
    exactly = decide(hourly, first=at("08:00"), now=at("12:00"), missed="all", missed_within=2 * HOUR)
    assert [tick.at for tick in exactly.ticks] == [at("10:00"), at("11:00"), at("12:00")]


def test_all__fires_in_portions() -> None:
    first, now = at("00:00"), at("05:00")
    given = []
    while first <= now:
        decision = decide(MINUTELY, first=first, now=now, missed="all", missed_within=DAY)
        assert decision.next_at is not None
        assert decision.given_up is None
        assert len(decision.ticks) <= MOST_TICKS
        given += [tick.at for tick in decision.ticks]
        first = decision.next_at
    assert given == [at("00:00") + MINUTE * number for number in range(301)]


def test_single_time__is_given_up_or_fired_late() -> None:
    definition = Definition(run_at=at("10:00:07"))
    skipped = decide(definition, first=at("10:00:07"), now=at("12:00"))
    assert skipped == Decision((), None, GivenUp(1, at("10:00:07"), at("10:00:07")))
    fired = decide(definition, first=at("10:00:07"), now=at("12:00"), missed="once")
    assert fired == Decision((Tick(at("10:00:07"), is_late=True),), None)


def test_nothing_is_due__if_the_rules_of_the_zone_have_changed() -> None:
    daily = Definition(cron="0 12 * * *")
    assert decide(daily, first=at("11:00"), now=at("11:00:01"), missed="once") == Decision((), at("12:00"))


def test_long_outages__are_decided_about_at_once() -> None:
    now = at("10:00:30")
    for definition, number in [(MINUTELY, MOST_COUNTED), (Definition(cron="@hourly"), 8760)]:
        started = time.thread_time()
        decision = decide(definition, first=at("10:00") - 365 * DAY, now=now, missed="once")
        assert decision.given_up is not None
        assert decision.given_up.number == number
        assert time.thread_time() - started < 0.5


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_every_tick__is_fired_or_given_up_or_left(data: st.DataObject) -> None:
    start = data.draw(schedules.near_changes())
    kind = data.draw(st.sampled_from([schedules.cron_definitions, schedules.interval_definitions]))
    definition = data.draw(kind(start))
    first = next_time(definition, start)
    if first is None:
        return
    now = first + timedelta(seconds=data.draw(st.integers(0, 7_200)))
    missed = data.draw(st.sampled_from(["skip", "once", "all"]))
    within = timedelta(seconds=data.draw(st.integers(1, 7_200))) if missed == "all" else None
    decision = decide(definition, first=first, now=now, missed=missed, missed_within=within)
    left_from = decision.next_at or now + DAY
    handled = [tick for tick in schedules.slow_ticks(definition, first - schedules.SECOND, now) if tick < left_from]
    fired = [tick.at for tick in decision.ticks]
    given_up = [tick for tick in handled if tick not in set(fired)]
    assert set(fired) <= set(handled)
    assert decision.given_up == (GivenUp(len(given_up), given_up[0], given_up[-1]) if given_up else None)
    assert fired == expected_ticks(handled, now, missed, within)
    assert [tick.is_late for tick in decision.ticks] == [now - tick > ON_TIME for tick in fired]


def expected_ticks(handled: list[datetime], now: datetime, missed: str, within: timedelta | None) -> list[datetime]:
    """Return the ticks that a policy keeps, in the words of the documentation."""
    if missed == "all":
        assert within is not None
        return [tick for tick in handled if now - tick <= max(within, ON_TIME)][:MOST_TICKS]
    kept = handled if missed == "once" else [tick for tick in handled if now - tick <= ON_TIME]
    return [handled[-1]] if handled and handled[-1] in kept else []
