from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from django_graphile_worker.crontab import CronItem, parse_cron_items
from django_graphile_worker.crontab.draft import Draft
from django_graphile_worker.exceptions import CrontabError
from django_graphile_worker.jobs import JobKeyMode


def never(moment: datetime) -> bool:
    return False


def test_defaults_are_filled_in() -> None:
    [item] = parse_cron_items([CronItem("a.dotted.task", "  0 4   * * * ")])
    assert (item.match, item.identifier, item.name) == ("0 4 * * *", "a.dotted.task", "a.dotted.task")


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


def test_all_mistakes_of_all_items_are_told_at_once() -> None:
    with pytest.raises(CrontabError) as caught:
        parse_cron_items(
            [
                CronItem("a", "61 24 * * *", max_attempts=0),
                CronItem("b", "* * * * *"),
                CronItem("b", "0 0 * * *"),
                "not an item",  # type: ignore[list-item]
            ]
        )
    assert [mistake.source for mistake in caught.value.mistakes] == [
        "CronItem 1 (a)", "CronItem 1 (a)", "CronItem 1 (a)", "CronItem 4", "CronItem 3 (b)",
    ]  # fmt: skip


def test_schedules_beside_a_task_take_options_and_payload() -> None:
    draft = Draft()
    draft.add_schedules("task", ["0 4 * * * ?fill=1d&tz=Asia/Tokyo {full: true}"], "@task")
    [item] = draft.finish()
    assert (item.name, item.match, item.period) == ("task", "0 4 * * *", timedelta(days=1))
    assert (item.payload, item.time_zone) == ({"full": True}, "Asia/Tokyo")


def test_several_schedules_beside_a_task_are_named_by_their_patterns_unless_they_say_otherwise() -> None:
    draft = Draft()
    draft.add_schedules("task", ["0 4 * * *", "@hourly", "5 5 * * * ?id=five"], "@task")
    assert [item.name for item in draft.finish()] == ["task 0 4 * * *", "task @hourly", "five"]


@pytest.mark.parametrize(
    ("schedule", "expected", "column"),
    [
        ("0 4 * *", "five time fields", 1),
        ("", "five time fields", 1),
        ("0 24 * * *", "an hour from 0 to 23", 3),
        ("0 4 * * * task", "options like ?fill=2d", 11),
        ("@nightly", "one of @hourly", 1),
    ],
)
def test_a_mistake_in_a_schedule_beside_a_task_names_the_task(schedule: str, expected: str, column: int) -> None:
    draft = Draft()
    draft.add_schedules("task", [schedule], "@task(cron=…) of task")
    with pytest.raises(CrontabError) as caught:
        draft.finish()
    [mistake] = caught.value.mistakes
    assert (mistake.source, mistake.line, mistake.column) == ("@task(cron=…) of task", None, column)
    assert expected in mistake.expected
