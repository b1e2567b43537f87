"""The code, the commands and the file of the guide to schedules do what the page says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from django_graphile_worker.admin.schedules.permissions import task_permission
from django_graphile_worker.models import Schedule
from tests.docs.pages import page
from tests.support.operating import execute, job_row, operate
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db
GUIDE = page("guides/schedules.md")
COMMANDS = re.findall(r"^\$ python manage.py (.+)$", GUIDE, flags=re.MULTILINE)


@pytest.fixture
def shop() -> Iterator[Any]:
    """Run the code of the page in one module."""
    namespace: dict[str, Any] = {"__name__": "testproject.shop.schedules_of_page"}
    with own_tasks():
        for block in re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL):
            exec(block, namespace)
        yield SimpleNamespace(**namespace)


def test_schedules__are_made_in_code(shop: Any) -> None:
    shop.add_tenant(7, "Europe/Berlin")
    shop.add_others()
    words, (first, second) = shop.describe("report-7")
    assert "04:00" in words
    assert "Europe/Berlin" in words
    assert timedelta(hours=23) <= second - first <= timedelta(hours=25)
    _, (first, second) = shop.describe("poll-partner")
    assert second - first == timedelta(seconds=10)
    assert len(shop.describe("launch")[1]) == 1
    shop.add_tenants(range(100, 200))
    assert Schedule.objects.count() == 103


def test_pause_and_run_now__work(shop: Any) -> None:
    shop.add_others()
    job_id = shop.maintenance()
    assert job_row(job_id, "run_at") is not None
    found = Schedule.objects.get(name="poll-partner")
    assert (found.paused_until, found.changed_by) == (None, "maria")


def test_change__is_recorded_under_the_name_that_code_states(shop: Any) -> None:
    shop.add_tenant(7, "UTC")
    shop.close_account(7, "ann")
    assert not Schedule.objects.get().is_enabled
    assert execute("select changed_by from {schema}._private_schedule_changes") == [("ann",)]


def test_schedulable_task__has_a_permission(shop: Any) -> None:
    assert task_permission("rebuild_search_index") == "graphile_worker.schedule:rebuild_search_index"
    assert task_permission("send_report") is None


def test_example__of_a_test_passes(shop: Any) -> None:
    shop.test_report_every_night()


def test_commands__work(shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = _file_of_the_page()
    (tmp_path / "schedules.json").write_text(file, encoding="utf-8")
    operate("schedules", "import", "schedules.json")
    assert len(COMMANDS) == 8
    for line in COMMANDS:
        call_command(*shlex.split(line))
    # The page shows the file as an export writes it.
    assert operate("schedules", "export").out == file


def _file_of_the_page() -> str:
    [text] = re.findall(r"```json\n(.*?)```", GUIDE, flags=re.DOTALL)
    return str(text)


def test_file__is_imported_once(shop: Any, tmp_path: Path) -> None:
    path = tmp_path / "schedules.json"
    path.write_text(_file_of_the_page(), encoding="utf-8")
    operate("schedules", "import", str(path))
    before = list(Schedule.objects.order_by("name").values_list("name", "revision", "changed_at"))
    assert [name for name, _, _ in before] == [each["name"] for each in json.loads(path.read_text())["schedules"]]
    operate("schedules", "import", str(path))
    assert list(Schedule.objects.order_by("name").values_list("name", "revision", "changed_at")) == before


def test_fields__are_those_of_the_model() -> None:
    """Each field that people set is on the page."""
    named = set(re.findall(r"`([a-z_]+)`", GUIDE))
    editable = {field.name for field in Schedule._meta.get_fields() if getattr(field, "editable", False)}
    assert editable - {"id", "paused_until"} <= named


def test_choices__are_those_of_the_model() -> None:
    for heading, choices in (("missed", Schedule.Missed), ("overlap", Schedule.Overlap)):
        table = GUIDE.rpartition(f"| `{heading}` | ")[2].partition("\n\n")[0]
        assert re.findall(r'^\| `"(\w+)"` \|', table, flags=re.MULTILINE) == [choice.value for choice in choices]


def test_times_of_the_page__are_in_the_future() -> None:
    assert timezone.now().year < 2030
