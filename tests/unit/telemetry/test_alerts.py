"""What is told of problems, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from django_graphile_worker.management.operator import VERBS
from django_graphile_worker.setting_types import AlertSettings
from django_graphile_worker.telemetry.alerts import (
    BEGAN,
    GREW,
    KINDS,
    OVER,
    QUIET_ROUNDS,
    Condition,
    ErrorFacts,
    Facts,
    News,
    judge,
)

HOUR = 3600.0
QUIET = QUIET_ROUNDS * 60.0
PAUSED = Condition(kind="paused", subject="queue mail", text="The queue mail has been paused for 2 h")


def failures(failed: int, *, retrying: int = 0, task: str = "send", name: str = "OSError") -> ErrorFacts:
    return ErrorFacts(task, name, failed + retrying, failed, False, 0.0, f"{name}: refused")


class Judge:
    """Judges one round after the other, each with the state of the last."""

    def __init__(self, **settings: Any) -> None:
        self.settings = AlertSettings(to=("mail_admins",), **settings)
        self.state: dict[str, Any] = {}

    def news(
        self,
        now: float,
        *errors: ErrorFacts,
        others: Sequence[Condition] = (),
        alive_since: float | None = 0.0,
        lived_at: float | None = None,
        unknown: Sequence[str] = (),
        has_more_errors: bool = False,
    ) -> list[News]:
        facts = Facts(
            now=now,
            errors=errors,
            has_more_errors=has_more_errors,
            others=others,
            alive_since=alive_since,
            lived_at=lived_at,
            unknown=unknown,
        )
        news, self.state = judge(facts, self.state, self.settings)
        return news

    def told(self, *args: Any, **kwargs: Any) -> list[tuple[str, str]]:
        return [(each.phase, each.condition.kind) for each in self.news(*args, **kwargs)]


def test_a_burst_of_equal_failures__is_one_message_an_hour_with_the_count() -> None:
    judge = Judge()
    (first,) = judge.news(0, failures(10_000))
    assert (first.phase, first.condition.text) == (BEGAN, "10,000 jobs of send failed permanently: OSError")
    assert judge.told(60, failures(10_000)) == []
    assert judge.told(HOUR - 1, failures(10_400)) == []
    (later,) = judge.news(HOUR, failures(10_500))
    assert (later.phase, later.condition.number, later.more) == (GREW, 10_500, 500)
    assert judge.told(2 * HOUR, failures(10_500)) == []


def test_since__stays_while_the_jobs_are_tried_again() -> None:
    judge = Judge()
    judge.news(0, failures(0, retrying=2))
    judge.news(60, failures(0, retrying=2)._replace(since=50.0))
    (news,) = judge.news(120, failures(1)._replace(since=110.0))[:1]
    assert news.condition.kind == "permanently_failed"
    judge.news(180, failures(2)._replace(since=170.0))
    entries = {entry["kind"]: entry["since"] for entry in judge.state["firing"].values()}
    assert entries == {"new_error": 0.0, "permanently_failed": 110.0}


def test_verbs__that_show_more_exist_and_show_it() -> None:
    assert {each.look for each in KINDS.values()} <= {verb.name for verb in VERBS}
    assert (KINDS["old_transaction"].look, KINDS["paused"].look) == ("doctor", "pause")


def test_what_is_over__is_told_once_and_told_anew_when_it_begins_again() -> None:
    judge = Judge()
    judge.news(0, failures(3))
    assert judge.told(60) == []
    assert judge.told(QUIET) == [(OVER, "permanently_failed")]
    assert judge.told(2 * QUIET) == []
    assert judge.told(2 * QUIET + 60, failures(1)) == [(BEGAN, "permanently_failed")]


def test_what_comes_and_goes__is_one_alert() -> None:
    judge = Judge()
    assert judge.told(0, others=[PAUSED]) == [(BEGAN, "paused")]
    for round_ in range(1, 20):
        assert judge.told(round_ * 120.0, others=[PAUSED] if round_ % 2 else []) == []


def test_what_could_not_be_read__is_not_over() -> None:
    judge = Judge()
    judge.news(0, others=[PAUSED])
    assert judge.told(10 * QUIET, unknown=["paused"]) == []
    assert judge.told(10 * QUIET + 60) == [(OVER, "paused")]


def test_errors_that_were_not_read__are_not_over_and_stay_usual() -> None:
    judge = Judge()
    gone = failures(0, retrying=5, task="gone")
    assert judge.told(0, failures(3), failures(100, name="KeyError"), gone) == [
        (BEGAN, "permanently_failed"),
        (BEGAN, "permanently_failed"),
        (BEGAN, "new_error"),
    ]
    (news,) = judge.news(10 * QUIET, failures(3), has_more_errors=True)
    assert (news.phase, news.condition.kind) == (BEGAN, "too_many_errors")
    assert judge.told(10 * HOUR, failures(3), has_more_errors=True) == []
    assert judge.state["known"]["send\nKeyError"]["usual"] == 100
    assert judge.told(11 * HOUR, failures(3), failures(100, name="KeyError")) == [
        (OVER, "new_error"),
        (OVER, "too_many_errors"),
    ]


def test_a_count_that_ended_early__does_not_lower_what_is_usual() -> None:
    judge = Judge()
    judge.news(0, failures(500))
    judge.news(10 * HOUR, failures(12)._replace(is_more=True))
    assert judge.state["known"]["send\nOSError"]["usual"] == 500


def test_after_some_jobs_were_deleted__those_that_fail_next_are_more() -> None:
    judge = Judge()
    judge.news(0, failures(100))
    judge.news(60, failures(10))
    (news,) = judge.news(HOUR, failures(40))
    assert (news.phase, news.more) == (GREW, 30)


def test_a_new_error__is_told_once_and_known_when_it_comes_back() -> None:
    judge = Judge()
    assert judge.told(0, failures(0, retrying=2)) == [(BEGAN, "new_error")]
    assert judge.told(60, failures(0, retrying=4)) == []
    assert judge.told(120 + QUIET) == [(OVER, "new_error")]
    assert judge.told(10 * HOUR, failures(0, retrying=2)) == []
    assert judge.told(10 * HOUR + 60, failures(1, retrying=2)) == [(BEGAN, "permanently_failed")]
    assert judge.told(11 * HOUR, failures(1), failures(0, retrying=1, name="KeyError")) == [(BEGAN, "new_error")]


@pytest.mark.parametrize(
    ("usual", "now", "news"),
    [(20, 199, []), (20, 200, [(BEGAN, "more_errors")]), (0, 9, []), (1, 12, [(BEGAN, "more_errors")])],
)
def test_ten_times_as_many_as_usual__are_told_if_they_are_ten(usual: int, now: int, news: list[Any]) -> None:
    judge = Judge()
    for hour in range(100):
        judge.news(hour * HOUR, failures(0, retrying=usual or hour == 0))
    assert judge.told(100 * HOUR, failures(0, retrying=now)) == news
    # What lasts becomes usual.
    if news:
        told = [judge.told(hour * HOUR, failures(0, retrying=now)) for hour in range(101, 140)]
        assert [(OVER, "more_errors")] in told


def test_an_error_that_was_told_just_now__is_not_told_again_because_it_grows() -> None:
    judge = Judge()
    assert judge.told(0, failures(3)) == [(BEGAN, "permanently_failed")]
    assert judge.told(60, failures(10_000)) == []


def test_no_worker__is_told_by_whoever_judges_without_one() -> None:
    judge = Judge()
    judge.news(0)
    assert judge.told(299, alive_since=None) == []
    (news,) = judge.news(300, alive_since=None)
    assert (news.phase, news.condition.kind) == (BEGAN, "no_worker")
    assert news.condition.detail == "Start one: manage.py runworker"
    assert judge.told(400, alive_since=390.0) == []
    assert judge.told(300 + QUIET, alive_since=390.0) == [(OVER, "no_worker")]


def test_a_gap_that_nobody_judged__is_told_by_the_worker_that_starts() -> None:
    judge = Judge()
    judge.news(1000)
    assert judge.told(1400, alive_since=1299.0) == []
    (news,) = judge.news(5000, alive_since=4220.0)
    assert (news.phase, news.condition.text) == (OVER, "No worker was alive for 47 min")
    assert judge.told(5060, alive_since=4220.0) == []


def test_workers_that_lived_since_the_last_round__shorten_the_gap() -> None:
    judge = Judge()
    judge.news(1000)
    assert judge.told(5000, alive_since=4990.0, lived_at=4980.0) == []
    assert judge.told(5500, alive_since=None, lived_at=5450.0) == []
    (news,) = judge.news(9000, alive_since=8990.0, lived_at=8390.0)
    assert (news.condition.text, news.condition.since) == ("No worker was alive for 10 min", 8390.0)


def test_settings__switch_conditions_off_and_ignore_names() -> None:
    facts = [failures(5), failures(5, task="sync:a"), failures(0, retrying=50, task="other")]
    others = [PAUSED]
    assert Judge(permanently_failed=False, new_error=False).told(0, *facts) == []
    judge = Judge(ignore=("sync:*", "queue m*"))
    assert {each.condition.subject for each in judge.news(0, *facts, others=others)} == {"send", "other"}
    judge = Judge(no_worker=None)
    judge.news(0)
    assert judge.told(10 * HOUR, alive_since=None) == []
