"""Which workers are dead."""

from __future__ import annotations

import math

from django_graphile_worker.sql.recovery import LateWorker
from django_graphile_worker.worker.maintenance.recovery import DeadWorkerDetector

TIMEOUT, BEAT = 60.0, 10.0


class Watch:
    """A detector, and the time by which it watches."""

    def __init__(self, **options: float) -> None:
        self.now = 1000.0
        self.detector = DeadWorkerDetector(lambda: self.now, **options)

    def look(self, silent: float, *, beaten_at: float = 5.0, in_contact_since: float = -math.inf) -> bool:
        late = LateWorker("w", beaten_at, silent, TIMEOUT, BEAT)
        return self.detector.find_dead([late], in_contact_since=in_contact_since) == [late]


def test_worker__is_dead_when_it_was_silent_long_enough_and_watched_long_enough() -> None:
    watch = Watch()
    assert not watch.look(500.0)
    assert watch.detector.until_next == 2 * BEAT
    watch.now += 2 * BEAT - 1
    assert not watch.look(519.0)
    assert watch.detector.until_next == 1.0
    watch.now += 1
    assert watch.look(520.0)


def test_worker__that_is_watched_while_it_falls_silent_is_dead_when_its_promise_is_over() -> None:
    watch = Watch()
    assert not watch.look(35.0)
    assert watch.detector.until_next == TIMEOUT - 35.0
    watch.now += 25
    assert watch.look(60.0)


def test_contact__that_was_lost_begins_the_watch_again() -> None:
    watch = Watch()
    assert not watch.look(500.0)
    watch.now += 2 * BEAT
    assert not watch.look(520.0, in_contact_since=watch.now - 1)
    assert not watch.look(520.0, in_contact_since=math.inf)
    watch.detector.reset()
    watch.now += 2 * BEAT
    assert not watch.look(540.0)


def test_beat_in_the_future__is_of_a_clock_that_was_set_back_and_is_watched_for_the_whole_promise() -> None:
    watch = Watch()
    assert not watch.look(-3600.0)
    watch.now += TIMEOUT - 1
    assert not watch.look(-3541.0)
    watch.now += 1
    assert watch.look(-3540.0)


def test_look__that_comes_too_late_has_not_seen_what_was_between() -> None:
    watch = Watch(longest_gap=5.0)
    assert not watch.look(500.0)
    watch.now += 2 * BEAT
    assert not watch.look(520.0)


def test_worker__that_was_late_while_contact_was_lost_is_dead_when_it_was_watched_after_that() -> None:
    watch = Watch()
    assert not watch.look(500.0, in_contact_since=math.inf)
    watch.now += 5
    contact = watch.now
    assert not watch.look(505.0, in_contact_since=contact)
    assert watch.detector.until_next == 2 * BEAT
    watch.now += 2 * BEAT
    assert watch.look(525.0, in_contact_since=contact)
