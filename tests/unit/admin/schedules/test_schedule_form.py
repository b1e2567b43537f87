"""The form of a schedule."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker.admin.schedules.schedule_form import ScheduleForm
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.times import next_times
from tests.support.schedule_forms import VALUES

TASKS = {"reports:plain": "", "reports:send": "Send <it>"}


class Form(ScheduleForm):
    tasks = TASKS

    def clean_name(self) -> str:
        """Do not ask the database whether another schedule has the name."""
        return str(self.cleaned_data["name"])


def form_with(schedule: Schedule | None = None, **values: Any) -> ScheduleForm:
    form = Form({"revision": "", **VALUES, **values}, instance=schedule)
    form.is_valid()
    return form


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kind": "interval", "interval": "every 10 s"}, {"interval": timedelta(seconds=10)}),
        ({"kind": "interval", "interval": "1h30m"}, {"interval": timedelta(minutes=90)}),
        ({"kind": "run_at", "run_at": "2090-07-01T09:00"}, {"run_at": datetime(2090, 7, 1, 7, tzinfo=UTC)}),
        ({"kind": "run_at", "run_at": "2090-07-01 09:00+00:00"}, {"run_at": datetime(2090, 7, 1, 9, tzinfo=UTC)}),
        ({"kind": "cron", "cron": "@hourly"}, {"cron": "@hourly"}),
    ],
)
def test_kind__is_the_only_one_that_counts(given: dict[str, str], expected: dict[str, Any]) -> None:
    form = form_with(None, **{"interval": "5 m", "run_at": "not a time", "cron": "x" * 600, **given})
    assert form.errors == {}
    found = {name: form.cleaned_data[name] for name in ("cron", "interval", "run_at")}
    assert found == {"cron": None, "interval": None, "run_at": None, **expected}


@pytest.mark.parametrize(
    ("given", "field", "error"),
    [
        ({"cron": "0 25 * * *"}, "cron", "Cron line column 3: expected an hour from 0 to 23, got '25'."),
        ({"cron": "@every 10 s"}, "cron", "give it as interval."),
        ({"cron": ""}, "cron", "This field is required."),
        ({"cron": "0 0 30 2 *"}, "cron", "expected a"),
        ({"cron": "1," * 250 + "1 * * * *"}, "cron", "at most 500 characters"),
        ({"kind": "interval", "interval": "10"}, "interval", "has no unit: s, m, h, d or w."),
        ({"kind": "interval", "interval": "0 s"}, "interval", "Expected an interval from 1 second to 100 years"),
        ({"kind": "run_at", "run_at": "2001-01-01T00:00"}, "run_at", "is past"),
        ({"kind": "run_at", "run_at": "soon"}, "run_at", "Enter a date and time like 2026-05-01 09:00."),
        ({"kind": "run_at", "run_at": ""}, "run_at", "This field is required."),
        ({"kind": "yearly"}, "kind", "Select a valid choice."),
        ({"time_zone": "Europe/Berlim"}, "time_zone", "did you mean Europe/Berlin?"),
        ({"time_zone": "../../etc/passwd"}, "time_zone", "Expected an IANA time zone"),
        ({"time_zone": "x\x00"}, "time_zone", "Null characters are not allowed."),
        ({"starts_at": "2030-01-02T00:00", "ends_at": "2030-01-01T00:00"}, "ends_at", "is not later than"),
        (
            {"starts_at": "2030-03-31T02:30"},
            "starts_at",
            "does not exist in Europe/Berlin: the clocks go forward then.",
        ),
        ({"starts_at": "0001-01-01T00:00"}, "starts_at", "Enter a year from 2 to 9998."),
        ({"starts_at": "9999-12-31T23:00"}, "starts_at", "9998"),
        ({"missed": "all"}, "missed_within", "how far back missed times are fired"),
        ({"missed": "never"}, "missed", "Select a valid choice."),
        ({"max_attempts": "0"}, "max_attempts", "greater than or equal to 1"),
        ({"name": ""}, "name", "This field is required."),
        ({"task": "internal:cleanup"}, "task", "You may not schedule “internal:cleanup”."),
    ],
)
def test_mistake__is_at_its_field(given: dict[str, str], field: str, error: str) -> None:
    form = form_with(None, **given)
    assert list(form.errors) == [field]
    assert error in form.errors[field][0]


def test_mistakes__are_all_told_at_once() -> None:
    form = form_with(cron="x", time_zone="y", missed="all", name="")
    assert set(form.errors) == {"cron", "time_zone", "missed_within", "name"}


def test_one_of_two_equal_hours__is_the_first() -> None:
    assert form_with(starts_at="2030-10-27T02:30").cleaned_data["starts_at"] == datetime(
        2030, 10, 27, 0, 30, tzinfo=UTC
    )


def test_stored_times__stay_what_they_are_unless_the_zone_changes() -> None:
    stored = datetime(2030, 10, 27, 1, 30, 0, 123, tzinfo=UTC)
    schedule = Schedule(**SAVED, starts_at=stored)
    shown = Form(instance=schedule).initial["starts_at"]
    assert shown.isoformat() == "2030-10-27T02:30:00"
    assert form_with(schedule, starts_at=shown.isoformat()).cleaned_data["starts_at"] == stored
    moved = form_with(schedule, starts_at=shown.isoformat(), time_zone="UTC").cleaned_data["starts_at"]
    assert moved == datetime(2030, 10, 27, 2, 30, tzinfo=UTC)


SAVED = {"pk": 1, "name": "nightly", "task": "reports:plain", "cron": "0 9 * * *", "time_zone": "Europe/Berlin"}


def test_anchor__stays_until_the_interval_or_its_start_changes() -> None:
    anchor = datetime(2026, 1, 1, 12, 0, 7, tzinfo=UTC)
    schedule = Schedule(**{**SAVED, "cron": None, "interval": timedelta(minutes=10)}, anchor_at=anchor)
    same = form_with(schedule, kind="interval", interval="10m").definition()
    other = form_with(schedule, kind="interval", interval="11m").definition()
    later = form_with(schedule, kind="interval", interval="10m", starts_at="2030-01-01T00:00").definition()
    anchors = [each.anchor_at for each in (same, other, later) if each is not None]
    assert anchors == [anchor, None, None]


@pytest.mark.parametrize(
    "values",
    [
        {"cron": ",".join(["1"] * 100_000) + " * * * *"},
        {"cron": "0 0 29 2 *", "starts_at": "9990-01-01T00:00"},
        {"kind": "interval", "interval": "1 s", "starts_at": "0100-01-01T00:00"},
        {"kind": "interval", "interval": "1 s", "ends_at": "9000-01-01T00:00"},
        {"kind": "interval", "interval": "9" * 100},
        {"time_zone": "x" * 64},
        {"name": "x" * 1_000_000, "description": "y" * 1_000_000},
    ],
)
def test_nasty_values__take_no_time(values: dict[str, str]) -> None:
    begin = time.thread_time()
    definition = form_with(None, **values).definition()
    if definition is not None:
        next_times(definition, datetime.now(UTC), 5)
    # Most of it is the search for a similar time zone.
    assert time.thread_time() - begin < 0.5


def test_names_of_tasks__have_their_descriptions() -> None:
    choices: Any = form_with().fields["task"]
    assert list(choices.choices) == [
        ("", "Choose a task"),
        ("reports:plain", "reports:plain"),
        ("reports:send", "reports:send: Send <it>"),
    ]
