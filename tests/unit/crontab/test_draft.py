from __future__ import annotations

from datetime import timedelta

import pytest

from django_graphile_worker.crontab import CronItem, CrontabMistake, Draft, parse_cron_items, parse_crontab
from django_graphile_worker.exceptions import CrontabError, InvalidTypeError


def _mistakes_in(text: str) -> tuple[CrontabMistake, ...]:
    with pytest.raises(CrontabError) as caught:
        parse_crontab(text)
    return caught.value.mistakes


def test_one_error_has_every_mistake_in_the_order_of_the_text() -> None:
    found = _mistakes_in("61 25 * * * a ?max=x {\n* * * * * b\n* * * * * b\nnonsense")
    assert [(mistake.line, mistake.column) for mistake in found] == [
        (1, 1), (1, 4), (1, 20), (1, 22), (3, 11), (4, 1),
    ]  # fmt: skip


def test_a_duplicate_identifier_names_the_other_line() -> None:
    [mistake] = _mistakes_in("* * * * * b\n0 0 * * * a ?id=b")
    assert (mistake.line, mistake.column, mistake.text) == (2, 17, "b")
    assert "crontab line 1 already has this identifier" in mistake.expected


def test_text_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match="expected crontab text, got None"):
        parse_crontab(None)  # type: ignore[arg-type]


def test_one_error_has_every_mistake_of_every_item() -> None:
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


def test_mistakes_in_many_sources_are_sorted_by_source() -> None:
    items = [CronItem("a", "61 * * * *", identifier=f"item{number}") for number in range(5_000)]
    with pytest.raises(CrontabError) as caught:
        parse_cron_items(items)
    assert [mistake.source for mistake in caught.value.mistakes] == [f"CronItem {n} (a)" for n in range(1, 5_001)]


def test_unknown_tasks_are_refused__with_the_name_that_is_closest() -> None:
    draft = Draft()
    draft.add_text("* * * * * reprot ?id=a\n* * * * * reprot ?id=b\n* * * * * zzz", "site.crontab")
    draft.refuse_unknown_tasks({"report"}, iter(["report"]))
    hinted = "the identifier of a registered task (did you mean 'report'?)"
    assert [(mistake.line, mistake.expected) for mistake in draft.mistakes] == [
        (1, hinted), (2, hinted), (3, "the identifier of a registered task"),
    ]  # fmt: skip
