from __future__ import annotations

import json
from datetime import timedelta

import pytest

from django_graphile_worker import run_flags


def test_flags__say_how_long_the_outcome_is_kept() -> None:
    assert run_flags.schedule_flag(5, timedelta(days=25)) == "schedule:5:2160000"
    assert run_flags.crontab_flag(timedelta(hours=25)) == "crontab:90000"


def test_flags__keep_the_outcome_for_an_hour_at_least_and_400_days_at_most() -> None:
    assert run_flags.crontab_flag(timedelta(seconds=25)) == "crontab:3600"
    assert run_flags.crontab_flag(timedelta(days=25 * 365)) == "crontab:34560000"


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
    assert run_flags.keep_in(json.dumps(dict.fromkeys(flags, True))) == seconds


def test_keep__of_no_flags_is_none() -> None:
    assert run_flags.keep_in(None) is None


def test_flags_of_people__stay() -> None:
    flags = ["bulk", "schedule:5:3600", "crontab:3600", "schedule:daily", "crontab:daily", "expires:5"]
    assert run_flags.without_run_flags(flags) == ["bulk", "schedule:daily", "crontab:daily", "expires:5"]


def test_schedule__is_the_id_in_the_flag() -> None:
    assert run_flags.schedule_in(["bulk", "crontab:60", "schedule:17:3600"]) == 17
    assert run_flags.schedule_in(["bulk", "crontab:60", "schedule:17"]) is None
