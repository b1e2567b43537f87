from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given

from django_graphile_worker.crontab import CronItem, parse_cron_items
from django_graphile_worker.exceptions import CrontabError
from django_graphile_worker.job_options import JobKeyMode
from tests.support import crontabs


def never(moment: datetime) -> bool:
    return False


@pytest.mark.parametrize(
    ("given", "attribute", "value"),
    [
        ({"backfill_period": "2d"}, "backfill_period", timedelta(days=2)),
        ({"backfill_period": 90}, "backfill_period", timedelta(seconds=90)),
        ({"backfill_period": 1.5}, "period", timedelta(seconds=1.5)),
        ({"time_zone": ZoneInfo("Asia/Tokyo")}, "time_zone", "Asia/Tokyo"),
        ({"time_zone": "Asia/Tokyo"}, "zone", ZoneInfo("Asia/Tokyo")),
        ({"job_key_mode": "unsafe_dedupe"}, "job_key_mode", JobKeyMode.UNSAFE_DEDUPE),
        ({"flags": ["a", "b", "a"]}, "flags", ("a", "b")),
        ({"payload": {"range": (1, 2)}}, "payload", {"range": [1, 2]}),
        ({"payload": {"text": r"\u0000"}}, "payload", {"text": r"\u0000"}),
        ({"match": never}, "match", never),
    ],
)
def test_values_are_made_plain(given: dict[str, Any], attribute: str, value: object) -> None:
    [item] = parse_cron_items([CronItem(**{"task": "task", "match": "* * * * *"} | given)])
    assert getattr(item, attribute) == value


@pytest.mark.parametrize(
    ("given", "expected", "text"),
    [
        ({"task": ""}, "task to be a task identifier of 1 to 128 characters", ""),
        ({"task": None}, "task to be a task identifier", "None"),
        ({"match": None}, "match to be a pattern like '0 4 * * *' or a callable", "None"),
        ({"match": "61 * * * *"}, "a minute from 0 to 59", "61"),
        ({"match": "* * * *"}, "five time fields", "* * * *"),
        ({"match": "* * * * * *"}, "five time fields", "* * * * * *"),
        ({"match": "0 0 30 2 *"}, "a day that exists in month 2", "30"),
        ({"payload": [1]}, "payload to be an object (a dict) as payload", "[1]"),
        ({"payload": {"at": timedelta(1)}}, "payload to be a payload that JSON can hold", None),
        ({"payload": {"text": "\0"}}, "without the character", None),
        ({"identifier": ""}, "identifier to be a name of 1 to 512 characters", ""),
        ({"backfill_period": timedelta(seconds=-1)}, "backfill_period to be a timedelta, seconds, or", None),
        ({"backfill_period": float("inf")}, "backfill_period to be a timedelta", "inf"),
        ({"backfill_period": 1e300}, "backfill_period to be a timedelta", "1e+300"),
        ({"backfill_period": True}, "backfill_period to be a timedelta", "True"),
        ({"backfill_period": "2 days"}, "backfill_period to be a timedelta", "2 days"),
        ({"backfill_period": None}, "backfill_period to be a timedelta", "None"),
        ({"max_attempts": 0}, "max_attempts to be a whole number from 1 to 32767", "0"),
        ({"max_attempts": "3"}, "max_attempts to be a whole number", "3"),
        ({"queue_name": "q" * 129}, "queue_name to be a name of 1 to 128 characters", "q" * 129),
        ({"priority": 1.5}, "priority to be a whole number from -32768 to 32767", "1.5"),
        ({"job_key": ""}, "job_key to be a key of 1 to 512 characters", ""),
        ({"job_key_mode": "nope"}, "job_key_mode to be 'replace', 'preserve_run_at' or 'unsafe_dedupe'", "nope"),
        ({"flags": "slow"}, "flags to be a list or set of strings", "slow"),
        ({"time_zone": "Mars/Olympus"}, "time_zone to be an IANA time zone", "Mars/Olympus"),
        ({"time_zone": 5}, "time_zone to be the name of an IANA time zone", "5"),
    ],
)
def test_a_mistake_names_the_item_the_attribute_and_what_was_expected(
    given: dict[str, Any], expected: str, text: str | None
) -> None:
    good = CronItem("good", "* * * * *")
    with pytest.raises(CrontabError) as caught:
        parse_cron_items([good, CronItem(**{"task": "bad", "match": "* * * * *"} | given)])
    [mistake] = caught.value.mistakes
    assert expected in mistake.expected
    assert text is None or mistake.text == text
    assert mistake.source.startswith("CronItem 2")


@given(crontabs.items())
def test_checking_a_checked_item_changes_nothing(item: CronItem) -> None:
    assert parse_cron_items([item]) == (item,)
