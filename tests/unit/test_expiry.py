from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import InvalidJobError, InvalidTypeError, JobSpec, expiry, task
from django_graphile_worker.registry import tasks

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expires", "flag"),
    [
        (NOON, "expires:1780315200"),
        (timedelta(minutes=1), "expires:1780315260"),
        (timedelta(seconds=0.25), "expires:1780315200.25"),
        (False, "expires:infinity"),
        (timedelta.max, "expires:infinity"),
    ],
)
def test_flag__has_the_time_or_the_duration_from_run_at(expires: Any, flag: str) -> None:
    assert expiry.flag_for(expires, NOON) == flag


def test_own_expiry__is_the_earliest_that_can_be_read() -> None:
    assert expiry.own_expiry({"bulk", "expires:20.5", "expires:10", "expires:soon"}) == 10
    assert expiry.own_expiry({"bulk"}) is None
    assert expiry.own_expiry({"expires:infinity"}) == math.inf


@pytest.mark.parametrize("text", ['{"b": true}', '"expires:1"', "[[", '{"expires:soon": true}', '{"expires:nan": 1}'])
def test_flags_without_a_time__do_not_expire(text: str) -> None:
    assert expiry.expiry_in(text) is None


def test_flags_of_a_row__are_read_from_objects_and_lists() -> None:
    assert expiry.expiry_in('{"expires:12": true, "bulk": true}') == 12
    assert expiry.expiry_in('["expires:12", 5]') == 12


def test_times_beyond_those_of_python__are_never() -> None:
    assert expiry.as_time(1e300) is None
    assert expiry.as_time(math.inf) is None
    assert expiry.as_time(0) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("wrong", ["1h", True, [5], NOON.date()])
def test_wrong_types__are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"^expires: expected an aware datetime, a timedelta"):
        JobSpec("send", expires=wrong)


@pytest.mark.parametrize("wrong", [0, -1, timedelta(0), math.inf, math.nan])
def test_durations_that_are_no_durations__are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidJobError, match=r"^expires: expected a duration"):
        JobSpec("send", expires=wrong)


def test_flag_that_only_looks_like_an_expiry__is_refused() -> None:
    with pytest.raises(InvalidJobError, match=r"expected 'expires:' to be followed by seconds since 1970"):
        JobSpec("send", flags=["expires:x"])
    assert JobSpec("send", flags=["expires:12"]).flags == ("expires:12",)


@pytest.mark.parametrize("wrong", [NOON, True, False, "1h"])
def test_task__takes_a_duration_only(wrong: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"^@task\(expires=\.\.\.\): expected"):
        task(expires=wrong)


def test_task__keeps_its_seconds() -> None:
    with tasks.isolated():

        @task(expires=timedelta(minutes=2))
        def send(payload: Any) -> None: ...

        assert send.expires == 120
