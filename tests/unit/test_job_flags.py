from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import job_flags

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
    assert job_flags.expiry_flag(expires, NOON) == flag


def test_own_expiry__is_the_earliest_that_can_be_read() -> None:
    assert job_flags.own_expiry({"bulk", "expires:20.5", "expires:10", "expires:soon"}) == 10
    assert job_flags.own_expiry({"bulk"}) is None
    assert job_flags.own_expiry({"expires:infinity"}) == math.inf


@pytest.mark.parametrize("text", ['{"b": true}', '"expires:1"', "[[", '{"expires:soon": true}', '{"expires:nan": 1}'])
def test_flags_without_a_time__do_not_expire(text: str) -> None:
    assert job_flags.expiry_in(text) is None


def test_flags_of_a_row__are_read_from_objects_and_lists() -> None:
    assert job_flags.expiry_in('{"expires:12": true, "bulk": true}') == 12
    assert job_flags.expiry_in('["expires:12", 5]') == 12


def test_times_beyond_those_of_python__are_never() -> None:
    assert job_flags.as_time(1e300) is None
    assert job_flags.as_time(math.inf) is None
    assert job_flags.as_time(0) == datetime(1970, 1, 1, tzinfo=UTC)


def test_flags__keep_the_outcome_for_an_hour_at_least_and_400_days_at_most() -> None:
    assert job_flags.crontab_flag(timedelta(seconds=25)) == "crontab:3600"
    assert job_flags.crontab_flag(timedelta(days=25 * 365)) == "crontab:34560000"


@pytest.mark.parametrize(
    ("flags", "seconds"),
    [
        (["schedule:5:3600"], 3600),
        (["crontab:90000", "bulk"], 90000),
        (["schedule:5:3600", "crontab:90000"], 90000),
        (["schedule:5", "schedule:daily:1", "schedule::60", "crontab:", "crontab:5 m", "my-crontab:60"], None),
        (["schedule:5:12345678901", "crontab:-5", "crontab:1:2"], None),
        ([], None),
    ],
)
def test_keep__is_that_of_our_own_flags(flags: list[str], seconds: float | None) -> None:
    assert job_flags.keep_in(json.dumps(dict.fromkeys(flags, True))) == seconds


def test_flags_of_people__stay() -> None:
    flags = ["bulk", "schedule:5:3600", "crontab:3600", "schedule:daily", "crontab:daily", "expires:5"]
    assert job_flags.without_run_flags(flags) == ["bulk", "schedule:daily", "crontab:daily", "expires:5"]


def test_schedule__is_the_id_in_the_flag() -> None:
    assert job_flags.schedule_in(["bulk", "crontab:60", "schedule:17:3600"]) == 17
    assert job_flags.schedule_in(["bulk", "crontab:60", "schedule:17"]) is None
