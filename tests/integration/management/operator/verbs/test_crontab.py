"""manage.py graphile_worker crontab."""

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


CRONTAB = "0 4 * * 1-5 send_receipt ?id=receipts&fill=2d&tz=Asia/Tokyo {order: 1}"


def test_crontab__tells_pattern_zone_next_times_and_the_last(settings: Any) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": CRONTAB}
    last = datetime(2026, 1, 5, 19, 0, tzinfo=UTC)
    execute("insert into {schema}._private_known_crontabs values ('receipts', %s, %s)", [minutes_ago(9), last])
    execute("insert into {schema}._private_known_crontabs values ('of-node', %s, null)", [minutes_ago(9)])
    told = operate("crontab", "--json").json
    (item,) = [item for item in told["items"] if item["identifier"] == "receipts"]
    times = [datetime.fromisoformat(moment) for moment in item["next"]]
    assert len(times) == 5
    assert all(moment.hour == 19 and moment.minute == 0 and moment.weekday() in {6, 0, 1, 2, 3} for moment in times)
    assert times == sorted(set(times))
    assert datetime.fromisoformat(item["last_execution"]) == last
    assert (item["time_zone"], item["backfill_seconds"]) == ("Asia/Tokyo", 2 * 86_400)
    assert [other["identifier"] for other in told["others"]] == ["of-node"]
    with timezone.override("Asia/Tokyo"):
        shown = operate("crontab", "--next", "2").out
    assert "Monday to Friday (Asia/Tokyo)" in shown
    assert "2026-01-06 04:00:00" in shown
    assert " 04:00:00 (in " in shown


def test_crontab__with_mistakes_tells_them(settings: Any, tmp_path: Path) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": "61 * * * * send_receipt"}
    with pytest.raises(CommandError, match="61"):
        operate("crontab")
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": ""}
    file = tmp_path / "crontab"
    file.write_text("5 * * * * send_receipt ?id=from-file", encoding="utf-8")
    items = operate("crontab", "--crontab", str(file), "--json").json["items"]
    assert "from-file" in {item["identifier"] for item in items}


class TestPausing:
    LAST = datetime(2026, 1, 5, 19, 0, tzinfo=UTC)

    @pytest.fixture(autouse=True)
    def _known_item(self, settings: Any) -> None:
        settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": CRONTAB}
        execute("insert into {schema}._private_known_crontabs values ('receipts', %s, %s)", [minutes_ago(9), self.LAST])

    def item(self) -> dict[str, Any]:
        (item,) = [each for each in operate("crontab", "--json").json["items"] if each["identifier"] == "receipts"]
        return dict(item)

    def test_crontab__pauses_an_item_and_keeps_its_last_run(self) -> None:
        assert operate("crontab", "--pause", "receipts").out == "receipts is paused.\n"
        item = self.item()
        assert (item["is_paused"], item["next"]) == (True, [])
        assert datetime.fromisoformat(item["last_execution"]) == self.LAST
        shown = operate("crontab").out
        assert "2026-01-05" in shown
        assert "paused; resume it with --resume receipts" in shown
        assert execute("select last_execution = 'infinity' from {schema}._private_known_crontabs") == [(True,)]
        assert operate("crontab", "--pause", "receipts").err == "receipts was paused already.\n"
        assert datetime.fromisoformat(self.item()["last_execution"]) == self.LAST

    def test_crontab__resumes_an_item_from_now_on(self) -> None:
        operate("crontab", "--pause", "receipts")
        assert operate("crontab", "--resume", "receipts").out == "receipts is resumed from now on.\n"
        item = self.item()
        assert (item["is_paused"], len(item["next"])) == (False, 5)
        assert datetime.fromisoformat(item["last_execution"]) == self.LAST
        assert datetime.fromisoformat(item["known_since"]) > minutes_ago(1)
        assert operate("crontab", "--resume", "receipts").err == "receipts was not paused.\n"

    def test_crontab__resumes_what_was_paused_by_hand(self) -> None:
        execute("update {schema}._private_known_crontabs set last_execution = 'infinity'")
        assert "no longer known" in operate("crontab").out
        said = operate("crontab", "--resume", "receipts", "--json").json
        assert said == {"identifier": "receipts", "is_paused": False, "was_changed": True}
        assert self.item()["last_execution"] is None

    def test_crontab__knows_no_such_item(self) -> None:
        with pytest.raises(CommandError, match=r"no recurring task 'reciepts'\. Did you mean 'receipts'\?"):
            operate("crontab", "--pause", "reciepts")

    def test_crontab__says_where_the_items_are_listed(self) -> None:
        with pytest.raises(CommandError, match=r"no recurring task 'xyz'\. graphile_worker crontab lists the items\.$"):
            operate("crontab", "--pause", "xyz")

    def test_crontab__of_an_item_that_no_worker_has_had_says_so(self) -> None:
        execute("delete from {schema}._private_known_crontabs")
        with pytest.raises(
            CommandError, match=r"no recurring task 'receipts'\. It is in the crontab of this project, but no worker"
        ):
            operate("crontab", "--pause", "receipts")

    def test_crontab__does_not_claim_a_run_for_a_paused_item_that_never_ran(self) -> None:
        execute("update {schema}._private_known_crontabs set last_execution = null")
        operate("crontab", "--pause", "receipts")
        assert "never, or no longer known" in operate("crontab").out
