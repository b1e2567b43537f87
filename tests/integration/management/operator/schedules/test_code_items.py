"""Recurring tasks of the code, in ``schedules list``, ``show``, ``pause`` and ``resume``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from tests.support.factories import minutes_ago
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


CRONTAB = "0 4 * * 1-5 send_report ?id=receipts&fill=2d&tz=Asia/Tokyo {order: 1}"
LAST = datetime(2026, 1, 5, 19, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _known_item(settings: Any, project: None) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": CRONTAB}
    execute("insert into {schema}._private_known_crontabs values ('receipts', %s, %s)", [minutes_ago(9), LAST])


def item() -> dict[str, Any]:
    return dict(operate("schedules", "show", "receipts", "--json").json)


def test_item__is_shown_with_its_pattern_zone_next_times_and_the_last() -> None:
    shown = item()
    times = [datetime.fromisoformat(moment) for moment in shown["next"]]
    assert len(times) == 5
    assert all(moment.hour == 19 and moment.minute == 0 and moment.weekday() in {6, 0, 1, 2, 3} for moment in times)
    assert times == sorted(set(times))
    assert datetime.fromisoformat(shown["last_execution"]) == LAST
    assert (shown["time_zone"], shown["backfill_seconds"]) == ("Asia/Tokyo", 2 * 86_400)
    with timezone.override("Asia/Tokyo"):
        text = operate("schedules", "show", "receipts", "--next", "2").out
    assert "Monday to Friday (Asia/Tokyo)" in text
    assert "2026-01-06 04:00:00" in text
    assert text.count(" 04:00:00 (in ") == 2
    assert "next" in operate("schedules", "show", "prune").out
    assert "unknown: no worker has registered the item yet" in operate("schedules", "show", "prune").out


def test_items_of_others__are_listed_and_shown() -> None:
    execute("insert into {schema}._private_known_crontabs values ('of-node', %s, null)", [minutes_ago(9)])
    assert [each["identifier"] for each in operate("schedules", "--json").json["others"]] == ["of-node"]
    assert operate("schedules").out.splitlines()[-1].split()[-3:] == ["-", "other", "code"]
    assert "another worker has or had it" in operate("schedules", "show", "of-node").out
    assert operate("schedules", "show", "of-node", "--json").json["identifier"] == "of-node"


def test_crontab__with_errors_names_them(settings: Any, tmp_path: Path) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": "61 * * * * send_report"}
    with pytest.raises(CommandError, match="61"):
        operate("schedules")
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": ""}
    file = tmp_path / "crontab"
    file.write_text("5 * * * * send_report ?id=from-file", encoding="utf-8")
    code = operate("schedules", "list", "--crontab", str(file), "--json").json["code"]
    assert {each["identifier"] for each in code} == {"prune", "from-file"}


def test_pause__keeps_the_last_run() -> None:
    assert operate("schedules", "pause", "receipts").out == "receipts is paused until it is resumed.\n"
    assert (item()["is_paused"], item()["next"]) == (True, [])
    assert datetime.fromisoformat(item()["last_execution"]) == LAST
    paused = operate("schedules", "list", "--state", "paused", "--json").json["code"]
    assert [each["identifier"] for each in paused] == ["receipts"]
    assert execute("select last_execution = 'infinity' from {schema}._private_known_crontabs") == [(True,)]
    assert operate("schedules", "pause", "receipts").err == "receipts was paused already.\n"
    with pytest.raises(CommandError, match="--until"):
        operate("schedules", "pause", "receipts", "--until", "+1h")


def test_resume__is_from_now_on() -> None:
    operate("schedules", "pause", "receipts")
    assert operate("schedules", "resume", "receipts").out == "receipts is resumed from now on.\n"
    assert (item()["is_paused"], len(item()["next"])) == (False, 5)
    assert datetime.fromisoformat(item()["last_execution"]) == LAST
    assert datetime.fromisoformat(item()["known_since"]) > minutes_ago(1)
    assert operate("schedules", "resume", "receipts").err == "receipts was not paused.\n"


def test_resume__of_what_was_paused_by_hand() -> None:
    execute("update {schema}._private_known_crontabs set last_execution = 'infinity'")
    assert "never, or no longer known" in operate("schedules", "show", "receipts").out
    assert operate("schedules", "resume", "receipts", "--json").json == [{"name": "receipts", "was_changed": True}]
    assert item()["last_execution"] is None


def test_schedules_and_items__are_paused_together() -> None:
    operate("schedules", "set", "nightly", "task=send_report", "cron=0 4 * * *")
    told = operate("schedules", "pause", "nightly", "receipts").out.splitlines()
    assert told == ["nightly is paused until it is resumed.", "receipts is paused until it is resumed."]


@pytest.mark.parametrize("verb", ["pause", "show"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("reciepts", r"no schedule 'reciepts'\. Did you mean 'receipts'\?"),
        ("xyz", r"no schedule 'xyz'\. graphile_worker schedules lists the names\.$"),
    ],
)
def test_unknown_name__is_refused(verb: str, name: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        operate("schedules", verb, name)


def test_item_that_no_worker_has_had__is_not_paused() -> None:
    execute("delete from {schema}._private_known_crontabs")
    with pytest.raises(CommandError, match=r"'receipts' is in no worker yet: start a worker with it first"):
        operate("schedules", "pause", "receipts")


def test_other_verbs__refuse_an_item() -> None:
    for verb in ("delete", "run"):
        with pytest.raises(CommandError, match="a recurring task of the code, which can be shown, paused and resumed"):
            operate("schedules", verb, "receipts")
