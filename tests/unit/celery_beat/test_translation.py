from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.celery_beat.translation import (
    COLUMNS,
    BeatRow,
    Target,
    TaskTable,
    Translation,
    Unsupported,
    beat_row,
    cron_line,
    read_table,
    translate,
)
from django_graphile_worker.crontab.patterns import Field, parse_pattern
from django_graphile_worker.exceptions import ConfigurationError
from tests.support.celery_beat import REASON

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NIGHTLY = {"minute": "0", "hour": "4", "day_of_month": "*", "month_of_year": "*", "day_of_week": "*"}


def row(kind: str = "interval", schedule: dict[str, Any] | None = None, **values: Any) -> BeatRow:
    return BeatRow(name="Nightly", task="x", kind=kind, schedule=schedule or {"every": 1, "period": "hours"}, **values)


def translated(beat: BeatRow, target: Target | None = None, *, is_django_task: bool = False) -> Translation:
    return translate(beat, target or Target("send"), now=NOW, is_django_task=is_django_task)


def test_values__are_those_of_a_schedule() -> None:
    beat = row("crontab", NIGHTLY | {"timezone": "Europe/Berlin"}, start_time=NOW, expires=NOW + HOUR, is_enabled=False)
    found = translated(beat)
    assert found.notes == ()
    assert found.anchor_at is None
    assert found.values == {
        "name": "Nightly",
        "task": "send",
        "payload": {},
        "cron": "0 4 * * *",
        "interval": None,
        "run_at": None,
        "time_zone": "Europe/Berlin",
        "starts_at": NOW,
        "ends_at": NOW + HOUR,
        "missed": "once",
        "is_enabled": False,
        "description": "",
    }


def test_arguments__get_the_names_of_the_table() -> None:
    beat = row(args='["maria", 5]', kwargs='{"kind": "mail"}')
    target = Target("send", ("user", "number", "retries"), {"source": "beat"})
    expected = {"user": "maria", "number": 5, "kind": "mail", "source": "beat"}
    assert translated(beat, target).values["payload"] == expected
    assert translated(beat, is_django_task=True).values["payload"] == {
        "args": ["maria", 5],
        "kwargs": {"kind": "mail"},
    }
    with pytest.raises(Unsupported, match=r'positional arguments \(\["maria", 5\]\).*"arguments": '):
        translated(beat, Target("send", ("user",)))


def test_single_time__is_the_next_time() -> None:
    once = row("crontab", NIGHTLY, is_one_off=True)
    found = translated(once)
    assert (found.values["run_at"], found.values["cron"]) == (datetime(2026, 11, 17, 4, tzinfo=UTC), None)
    assert found.is_computed_time
    hourly = row(is_one_off=True, last_run_at=NOW - HOUR / 4)
    assert translated(hourly).values["run_at"] == NOW + HOUR * 3 / 4
    clocked = row("clocked", {"clocked_time": NOW + HOUR}, is_one_off=True)
    assert (translated(clocked).values["run_at"], translated(clocked).is_computed_time) == (NOW + HOUR, False)


@pytest.mark.parametrize(
    ("beat", "reason"),
    [
        (row("clocked", {"clocked_time": NOW}, is_one_off=True), "its time has passed"),
        (row(is_one_off=True, total_run_count=1), "has run"),
        (row(is_one_off=True, expires=NOW + HOUR / 4, last_run_at=NOW), "its time has passed"),
        (row(expires=NOW), r"it has expired \(2026-11-16 12:00:00 UTC\)"),
        (row("solar", {"event": "sunset", "latitude": 1, "longitude": 2}), "sunset at 1, 2"),
        (row("", {}), "no schedule"),
        (row(schedule={"every": 1, "period": "fortnights"}), "its interval is 1 fortnights"),
        (row(schedule={"every": 999_999, "period": "microseconds"}), "the shortest interval is 1 second"),
        (row(kwargs="{"), "no JSON"),
        (row(kwargs="[]"), "no list and no object"),
    ],
)
def test_what_has_no_equivalent__is_refused_with_the_reason(beat: BeatRow, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        translated(beat)


def test_options__of_the_table_win_and_leave_no_note() -> None:
    beat = row(queue="mail", priority=9)
    assert len(translated(beat).notes) == 2
    found = translated(beat, Target("send", options={"queue_name": "mail", "priority": -1}))
    assert (found.notes, found.values["queue_name"], found.values["priority"]) == ((), "mail", -1)


def test_row_of_an_old_version__lacks_columns() -> None:
    old = {"name": "Nightly", "task": "x", "interval_id": 3, "crontab_id": None, "enabled": 1, "headers": None}
    found = beat_row(old, {"interval": {3: {"every": 1, "period": "hours"}}})
    assert (found.kind, found.is_enabled, found.headers) == ("interval", True, "{}")
    assert translated(found).values["interval"] == HOUR


KNOWN = ("report", "send", "proj.tasks.exact")


def target(name: str, given: dict[str, Target | None] | None = None, used: tuple[str, ...] = ()) -> Target:
    return TaskTable(given or {}, KNOWN, (name, *used)).target(name)


def test_task__is_found_by_its_name_and_then_by_its_function() -> None:
    assert target("proj.tasks.exact") == Target("proj.tasks.exact")
    assert target("report") == Target("report")
    assert target("proj.tasks.report") == Target("report")
    with pytest.raises(Unsupported, match=r"no task 'proj.a.report'. Did you mean 'report'\? Name the task"):
        target("proj.a.report", used=("proj.b.report",))


def test_table__is_read_from_pairs_and_files(tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    entry = {"task": "send", "arguments": ["user"], "payload": {"kind": "mail"}, "queue_name": "mail"}
    file.write_text(json.dumps({"a": "send", "b": None, "c": entry}))
    assert read_table(["x=report", str(file)]) == {
        "x": Target("report"),
        "a": Target("send"),
        "b": None,
        "c": Target("send", ("user",), {"kind": "mail"}, {"queue_name": "mail"}),
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "expected NAME=NAME, or a JSON file"),
        ("[]", "expected a JSON object"),
        ('{"a": 5}', "expected the name of a task, null, or an object with the key 'task' for 'a', got 5"),
        ('{"a": {"task": "send", "queue": "x"}}', "got 'queue'. Did you mean 'queue_name'?"),
    ],
)
def test_file__with_mistakes_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "tasks.json"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        read_table([str(file)])
    assert reason in str(caught.value)


crontab = pytest.importorskip("celery.schedules", reason=REASON).crontab
EVERY = dict.fromkeys(COLUMNS, "*")


@st.composite
def parts(draw: st.DrawFn, kind: Field) -> str:
    first, last = draw(st.integers(kind.smallest, kind.largest)), draw(st.integers(kind.smallest, kind.largest))
    step = draw(st.integers(1, 9))
    forms = ["*", str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}"]
    if kind.names:
        forms += [f"{next(iter(kind.names)).lower()}-{first}", list(kind.names)[-1].title()]
    return draw(st.sampled_from(forms))


@given(st.data(), st.sampled_from(sorted(COLUMNS)))
def test_field__means_what_it_means_in_celery(data: st.DataObject, column: str) -> None:
    text = ",".join(data.draw(st.lists(parts(COLUMNS[column]), min_size=1, max_size=3)))
    expected = getattr(crontab(**{column: text}), column)
    pattern = parse_pattern(cron_line(EVERY | {column: text}))
    names = {
        "minute": "minutes",
        "hour": "hours",
        "day_of_month": "dates",
        "month_of_year": "months",
        "day_of_week": "weekdays",
    }
    assert set(getattr(pattern, names[column])) == expected


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "* * * * *"),
        ({"minute": "*/15", "hour": "9-17", "day_of_week": "mon-fri"}, "*/15 9-17 * * mon-fri"),
        ({"minute": "0, 30"}, "0,30 * * * *"),
        ({"hour": "22-4"}, "* 0-4,22-23 * * *"),
        ({"hour": "22-4/2"}, "* 0,2,4,22 * * *"),
        ({"day_of_week": "monday,thursday"}, "* * * * 1,4"),
        ({"day_of_month": "31", "month_of_year": "january"}, "* * 31 1 *"),
        ({"day_of_month": "1-31", "day_of_week": "mon"}, "* * 1-31 * mon"),
    ],
)
def test_usual_text__is_kept(fields: dict[str, str], line: str) -> None:
    assert cron_line(EVERY | fields) == line


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"day_of_week": "7"}, "Celery knows no day_of_week '7', so beat never fires it"),
        ({"minute": "60"}, "Celery knows no minute '60'"),
        ({"minute": "x"}, "Celery knows no minute 'x'"),
        ({"minute": "*/0"}, "Celery cannot read minute"),
        ({"minute": ""}, "Celery cannot read minute ''"),
        ({"minute": "5 * * * * *"}, "Celery cannot read minute"),
        ({"day_of_month": "1-7", "day_of_week": "1"}, "a cron line fires on days that match either"),
    ],
)
def test_other_text__is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        cron_line(EVERY | fields)


def test_celery__fires_only_on_days_that_match_both() -> None:
    """The reason why such crontabs are refused."""
    first_mondays = crontab(minute="0", hour="4", day_of_month="1-7", day_of_week="mon")
    first_mondays.nowfun = lambda: datetime(2026, 11, 3, tzinfo=UTC)
    _, seconds = first_mondays.is_due(datetime(2026, 11, 3, tzinfo=UTC))
    assert timedelta(seconds=seconds) == datetime(2026, 12, 7, 4, tzinfo=UTC) - datetime(2026, 11, 3, tzinfo=UTC)
