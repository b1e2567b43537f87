"""``schedules export`` and ``import``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, tzinfo
from io import StringIO
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from django_graphile_worker.models import Schedule
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(*entries: Any, text: str | None = None) -> str:
        path = tmp_path / "schedules.json"
        path.write_text(json.dumps({"schedules": entries}) if text is None else text, encoding="utf-8")
        return str(path)

    return write


NIGHTLY = {"name": "nightly", "task": "send_report", "cron": "0 4 * * *"}


def _make() -> None:
    """Add a schedule of each kind; one has all options."""
    berlin = ZoneInfo("Europe/Berlin")
    weekly = Schedule(
        name="weekly", task="send_report", payload={"z": 1, "a": ["ä", True, 1.5]}, cron="@weekly",
        time_zone="Europe/Berlin", starts_at=_time(2083, 1, 1, zone=berlin), ends_at=_time(2083, 7, 1, zone=berlin),
        missed="all", missed_within=timedelta(hours=36), overlap="queue", queue_name="reports", priority=0,
        max_attempts=3, job_key="weekly", is_enabled=False, description="Zürich",
    )  # fmt: skip
    often = Schedule(name="often", task="sync_stock", interval=timedelta(seconds=1.5))
    once = Schedule(name="once", task="send_report", run_at=_time(2086, 1, 1, 9), paused_until=_time(2085, 1, 1))
    Schedule.objects.bulk_create([weekly, often, once])
    often.pause()


def _time(*parts: int, zone: tzinfo = UTC) -> datetime:
    """Return a time as the project has it, with or without its time zone."""
    moment = datetime(*parts, tzinfo=zone)  # type: ignore[arg-type, misc]
    return moment if settings.USE_TZ else timezone.make_naive(moment)


def _state() -> list[Any]:
    return [
        execute("select name, revision, changed_at from {schema}._private_schedules order by name"),
        execute("select count(*) from {schema}._private_schedule_changes"),
    ]


def test_export__is_short_and_stable() -> None:
    _make()
    told = operate("schedules", "export").out
    assert told == operate("schedules", "export").out
    often, once, weekly = json.loads(told)["schedules"]
    assert often == {"name": "often", "task": "sync_stock", "interval": "1.5s", "paused_until": "resumed"}
    assert once == {
        "name": "once",
        "task": "send_report",
        "run_at": "2086-01-01T09:00:00+00:00",
        "paused_until": "2085-01-01T00:00:00+00:00",
    }
    assert list(weekly)[:4] == ["name", "description", "task", "payload"]
    assert (weekly["starts_at"], weekly["ends_at"]) == ("2083-01-01T00:00:00+01:00", "2083-07-01T00:00:00+02:00")
    assert (weekly["missed"], weekly["missed_within"], weekly["is_enabled"]) == ("all", "1d12h", False)
    assert "Zürich" in told
    assert [each["name"] for each in operate("schedules", "export", "once").json["schedules"]] == ["once"]


def test_import__of_an_export_changes_nothing(file: Any) -> None:
    _make()
    before, path = _state(), file(text=operate("schedules", "export").out)
    for _ in range(2):
        assert operate("schedules", "import", path).out == "0 added, 0 changed, 0 deleted, 3 unchanged.\n"
    assert operate("schedules", "import", path, "--check", "--delete-others").out.startswith("Nothing was changed.")
    assert _state() == before


def test_import__makes_again_what_was_exported(file: Any) -> None:
    _make()
    text = operate("schedules", "export").out
    Schedule.objects.all().delete()
    assert operate("schedules", "import", file(text=text)).out.endswith("3 added, 0 changed, 0 deleted, 0 unchanged.\n")
    assert operate("schedules", "export").out == text


def test_import__adds_changes_and_deletes(file: Any) -> None:
    _make()
    path = file(NIGHTLY, {"name": "often", "task": "sync_stock", "interval": "2m", "payload": {"a": True}})
    told = operate("schedules", "import", path, "--dry-run")
    assert told.out.splitlines()[1:] == [
        "change often:",
        "  payload: {} -> {'a': True}",
        "  interval: '1.5s' -> '2m'",
        "Nothing was changed. It would be: 1 added, 1 changed, 0 deleted, 0 unchanged.",
    ]
    assert told.err == "Not in the file, and left as before: 2 schedules. --delete-others deletes them.\n"
    assert not Schedule.objects.filter(name="nightly").exists()
    with pytest.raises(CommandError, match=r"^The schedules differ from the file"):
        operate("schedules", "import", path, "--check")
    told = operate("schedules", "import", path, "--delete-others", "--by", "maria", "--json")
    assert told.json == {
        "added": ["nightly"],
        "changed": {"often": {"payload": [{}, {"a": True}], "interval": ["1.5s", "2m"]}},
        "deleted": ["once", "weekly"],
        "unchanged": 0,
        "kept": 0,
        "is_dry_run": False,
    }
    assert sorted(Schedule.objects.values_list("name", "changed_by")) == [("nightly", "maria"), ("often", "maria")]
    # A pause that the file does not mention stays.
    assert Schedule.objects.get(name="often").paused_until is not None
    # JSON distinguishes true and 1, Python does not.
    operate("schedules", "import", file({"name": "often", "task": "sync_stock", "interval": "2m", "payload": {"a": 1}}))
    assert Schedule.objects.get(name="often").payload["a"] is not True


def test_import__reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(json.dumps({"schedules": [NIGHTLY]})))
    operate("schedules", "import", "-")
    assert Schedule.objects.get().name == "nightly"


def test_import__names_every_mistake_by_its_schedule_and_imports_nothing(file: Any) -> None:
    path = file(
        NIGHTLY,
        {"name": "a", "task": "send_reprt", "cron": "61 * * * *", "prioritty": 1},
        {"name": "b", "task": "send_report", "interval": 10, "is_enabled": 1, "time_zone": "Mars"},
        {"task": "send_report", "cron": "@daily"},
        {"name": "c", "task": "send_report"},
        NIGHTLY,
        [],
    )
    with pytest.raises(CommandError) as refused:
        operate("schedules", "import", path)
    first, *lines = str(refused.value).splitlines()
    assert first == "Nothing was imported. Correct these errors:"
    told = "\n".join(lines)
    for text in (
        "schedule 'a': expected a field of a schedule (name, ",
        "got 'prioritty'.",
        "schedule 'a': task: ",
        "schedule 'a': cron: ",
        "schedule 'b': interval: expected a timedelta, or ",
        "schedule 'b': is_enabled: expected true or false, got 1.",
        "schedule 'b': time_zone: ",
        "schedule number 4: name: a value is required.",
        "schedule 'c': ",
        "schedule 'nightly': the file has several entries with this name.",
        "schedule number 7: expected an object with the fields of a schedule, got [].",
    ):
        assert text in told
    assert not Schedule.objects.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON as graphile_worker schedules export writes it"),
        ('{"schedules": [{"name": "a", "name": "b"}]}', "the key 'name' twice in one object"),
        ('{"schedules": [{"payload": {"a": NaN}}]}', "NaN, which is not JSON"),
        ("[]", 'expected {"schedules": [...]}'),
        ('{"schedules": [], "more": 1}', 'expected {"schedules": [...]}'),
    ],
)
def test_other_files__are_refused(file: Any, text: str, message: str) -> None:
    with pytest.raises(CommandError) as refused:
        operate("schedules", "import", file(text=text))
    assert message in str(refused.value)


def test_missing_file__is_told() -> None:
    with pytest.raises(CommandError, match=r"^'nowhere"):
        operate("schedules", "import", "nowhere.json")


def test_project_without_time_zones__exports_and_imports_the_same(file: Any, settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    connection.ensure_timezone()
    try:
        _make()
        text = operate("schedules", "export").out
        assert json.loads(text)["schedules"][1]["run_at"] == "2086-01-01T09:00:00+00:00"
        assert operate("schedules", "import", file(text=text)).out == "0 added, 0 changed, 0 deleted, 3 unchanged.\n"
        assert "2086-01-01 09:00:00+00:00" in operate("schedules", "show", "once").out
        assert "2085-01-01 09:00:00" in operate("schedules", "show", "once").out
        assert "weekly" in operate("schedules").out
    finally:
        settings.USE_TZ, settings.TIME_ZONE = True, "UTC"
        connection.ensure_timezone()


def test_import__refuses_the_name_of_a_schedule_of_the_code(file: Any) -> None:
    Schedule.objects.create(name="nightly", task="send_report", interval=timedelta(seconds=30))
    Schedule.objects.update(is_from_code=True)
    with pytest.raises(CommandError, match=r"'nightly' is @task\(every=\.\.\.\) in the code"):
        operate("schedules", "import", file(NIGHTLY))
    assert Schedule.objects.get().cron is None
