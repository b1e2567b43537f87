"""The times to choose from when jobs are rescheduled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone, translation

from django_graphile_worker.admin.jobs import forms
from django_graphile_worker.admin.jobs.forms import PRESETS, RescheduleForm, fields_to_send_again

PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    ("preset", "now", "expected"),
    [
        ("5m", "2026-11-16T23:58:01.5", "2026-11-17T00:03:01"),
        ("1h", "2026-11-16T12:00:00", "2026-11-16T13:00:00"),
        ("tomorrow", "2026-12-31T00:10:00", "2027-01-01T09:00:00"),
        ("monday", "2026-11-16T08:00:00", "2026-11-23T09:00:00"),
        ("monday", "2026-11-22T23:00:00", "2026-11-23T09:00:00"),
        ("monday", "2026-11-17T23:00:00", "2026-11-23T09:00:00"),
    ],
)
def test_preset__is_a_time_in_the_zone_of_the_user(preset: str, now: str, expected: str) -> None:
    given = datetime.fromisoformat(now).replace(tzinfo=PARIS)
    assert PRESETS[preset](given) == datetime.fromisoformat(expected).replace(tzinfo=PARIS)


def test_hour__is_an_hour_also_if_the_clock_changes_meanwhile() -> None:
    before_the_change = datetime(2026, 10, 25, 2, 30, tzinfo=PARIS)
    assert PRESETS["1h"](before_the_change) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


def test_morning__is_nine_also_after_the_clock_has_changed() -> None:
    before_the_change = datetime(2026, 10, 24, 12, tzinfo=PARIS)
    morning = PRESETS["tomorrow"](before_the_change)
    assert (morning.hour, morning.utcoffset()) == (9, timedelta(hours=1))


def test_labels__are_in_the_language_and_the_format_of_the_user() -> None:
    english = dict(RescheduleForm().fields["preset"].choices)  # type: ignore[attr-defined]
    assert (english["5m"], english["tomorrow"]) == ("in 5 minutes", "tomorrow at 9 a.m.")
    with translation.override("de"):
        german = dict(RescheduleForm().fields["preset"].choices)  # type: ignore[attr-defined]
        assert (german["5m"], german["tomorrow"]) == ("in 5 Minuten", "morgen um 09:00")


def test_time_of_the_list_and_exact_time__contradict_each_other() -> None:
    form = RescheduleForm({"preset": "1h", "run_at": "2026-11-16T09:00"})
    assert form.errors == {"preset": ["Choose a time from the list or write an exact time, not both."]}


def test_unknown_preset__is_refused() -> None:
    assert "preset" in RescheduleForm({"preset": "1y"}).errors


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "UTC"])
def test_time_of_the_list__is_sent_again_as_the_time_that_it_meant(zone: str, monkeypatch: Any) -> None:
    """Also in the hour that the clock repeats, when a time without an offset has two meanings."""
    monkeypatch.setattr(f"{forms.__name__}.localtime", lambda: datetime(2026, 10, 25, 2, 30, tzinfo=PARIS))
    with timezone.override(zone):
        first = RescheduleForm({"preset": "5m", "priority": "", "attempts": "", "max_attempts": ""})
        assert first.is_valid()
        again = RescheduleForm(dict(fields_to_send_again(first)))
        assert again.is_valid(), again.errors
        assert again.cleaned_data == first.cleaned_data
    assert "preset" not in first.cleaned_data
