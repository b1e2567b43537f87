from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_graphile_worker import conf, recurring, registry
from django_graphile_worker.checks.tasks import check_crontab
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.errors import MistakeCollector
from django_graphile_worker.crontab.parser import PlacedItem, read_crontab
from django_graphile_worker.exceptions import ConfigurationError, CrontabError


@pytest.fixture(autouse=True)
def _only_two_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "tasks", registry.Registry())

    @registry.task("report")
    def report(payload: Any) -> None: ...

    @registry.task("mail:send")
    def send(payload: Any) -> None: ...


def settings(**values: Any) -> conf.Settings:
    return conf.Settings.from_mapping(values)


def test_every_source_is_collected(tmp_path: Path) -> None:
    path = tmp_path / "crontab"
    path.write_text("\ufeff# nightly\n0 1 * * * report ?id=file\n", encoding="utf-8")

    @registry.task("beside", cron="0 2 * * *")
    def beside(payload: Any) -> None: ...

    items = recurring.collect(
        settings(
            CRONTAB=["0 3 * * * report ?id=text\n@daily report ?id=text2", CronItem("mail:send", "0 4 * * *")],
            CRONTAB_FILE=path,
        )
    )
    assert [item.name for item in items] == ["text", "text2", "mail:send", "file", "beside"]


def test_the_time_zone_of_the_setting__is_that_of_items_without_one() -> None:
    @registry.task("beside", cron="0 2 * * *")
    def beside(payload: Any) -> None: ...

    crontab = [
        "0 4 * * * report",
        "0 4 * * * mail:send ?tz=UTC",
        CronItem("report", lambda moment: True, identifier="f"),
    ]
    items = recurring.collect(settings(CRONTAB=crontab, CRONTAB_TIME_ZONE="Europe/Berlin"))
    zones = {item.name: item.time_zone for item in items}
    assert zones == dict.fromkeys(("report", "f", "beside"), "Europe/Berlin") | {"mail:send": "UTC"}
    assert {item.time_zone for item in recurring.collect(settings(CRONTAB=crontab))} == {None, "UTC"}


def test_one_error_has_every_mistake_of_every_source_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "crontab"
    path.write_text("61 1 * * * report\n* * * * * repotr\n")

    @registry.task("beside", cron="0 25 * * *")
    def beside(payload: Any) -> None: ...

    crontab = ["* * * * * report", CronItem("report", "* * * * *"), CronItem("mail:send", "x"), 7]
    with pytest.raises(CrontabError) as caught:
        recurring.collect(settings(CRONTAB=crontab, CRONTAB_FILE=path))
    message = str(caught.value)
    for expected in (
        "entry 2 (report): expected an identifier of its own",
        'GRAPHILE_WORKER["CRONTAB"] entry 1, line 1 already has this identifier',
        "entry 3 (mail:send) column 1: expected five time fields",
        "entry 4: expected a CronItem or crontab text, got '7'",
        f"{path} line 1, column 1: expected a minute from 0 to 59, got '61'",
        f"{path} line 2, column 11: expected the identifier of a registered task (did you mean 'report'?)",
        "@task(cron=...) of beside column 3: expected an hour from 0 to 23, got '25'",
    ):
        assert expected in message, message
    assert len(caught.value.mistakes) == 6


def test_a_schedule_beside_a_task_has_the_tasks_defaults_unless_it_says_otherwise() -> None:
    @registry.task(
        "beside",
        cron=["0 2 * * * ?id=plain", "0 3 * * * ?id=own&queue=other&max=2&jobKey=fixed {user: 5}"],
        queue_name="reports",
        max_attempts=7,
        priority=3,
        flags=["slow"],
        job_key=lambda payload: f"user-{payload.get('user')}",
        job_key_mode="preserve_run_at",
    )
    def beside(payload: Any) -> None: ...

    plain, own = recurring.collect(settings())
    assert (plain.queue_name, plain.max_attempts, plain.priority, plain.flags) == ("reports", 7, 3, ("slow",))
    assert (plain.job_key, plain.job_key_mode) == ("user-None", "preserve_run_at")
    assert (own.queue_name, own.max_attempts, own.job_key, own.priority) == ("other", 2, "fixed", 3)


def test_a_job_key_that_cannot_be_made_is_a_mistake() -> None:
    @registry.task("beside", cron="0 2 * * *", job_key=lambda payload: payload["user"])
    def beside(payload: Any) -> None: ...

    with pytest.raises(CrontabError, match="a payload that job_key can make a key of"):
        recurring.collect(settings())


def test_an_item_named_in_the_crontab_has_no_defaults_as_with_add_job() -> None:
    @registry.task("other", queue_name="reports")
    def other(payload: Any) -> None: ...

    [item] = recurring.collect(settings(CRONTAB="* * * * * other ?fill=1h"))
    assert (item.queue_name, item.period) == (None, timedelta(hours=1))


def test_a_file_that_is_missing_or_unreadable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="expected a file that can be read"):
        recurring.collect(settings(CRONTAB_FILE=tmp_path / "missing"))
    path = tmp_path / "latin"
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(CrontabError, match="expected a crontab in UTF-8"):
        recurring.collect(settings(CRONTAB_FILE=path))


def test_a_crontab_is_read_once_however_often_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "crontab"
    path.write_text("\n".join(f"* * * * * report ?id=item{number}" for number in range(100)))
    reads: list[str] = []

    def counted(text: str, collector: MistakeCollector) -> list[PlacedItem]:
        reads.extend([text] if text else [])
        return read_crontab(text, collector)

    monkeypatch.setattr("django_graphile_worker.crontab.parser.read_crontab", counted)
    mine = settings(CRONTAB_FILE=path)
    first = recurring.collect(mine)
    with override_settings(GRAPHILE_WORKER={"CRONTAB_FILE": str(path)}):
        assert check_crontab() == []
    assert (recurring.collect(mine), len(reads)) == (first, 1)

    path.write_text("* * * * * report ?id=changed")
    assert [item.name for item in recurring.collect(mine)] == ["changed"]

    @registry.task("beside", cron="0 2 * * *")
    def beside(payload: Any) -> None: ...

    assert [item.name for item in recurring.collect(mine)] == ["changed", "beside"]


def test_mistakes_that_one_caller_adds_are_not_seen_by_the_next() -> None:
    mine = settings(CRONTAB="* * * * * unknown")
    for _ in range(2):
        with pytest.raises(CrontabError, match="1 error in the crontab"):
            recurring.collect(mine)
