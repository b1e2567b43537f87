"""Times as an operator reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_graphile_worker.management.operator import times

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.3, "now"),
        (-0.3, "now"),
        (1, "in 1 s"),
        (59.6, "in 1 m"),
        (299.9, "in 5 m"),
        (-180, "3 m ago"),
        (-3 * 3600 - 5, "3 h ago"),
        (86_400 * 3, "in 3 d"),
        (86_400 * 800, "in 2 y"),
    ],
)
def test_relative(seconds: float, told: str) -> None:
    assert times.relative(NOW + timedelta(seconds=seconds), NOW) == told


def test_absolute__is_in_the_current_time_zone() -> None:
    with timezone.override("Europe/Paris"):
        assert times.both(NOW, NOW) == "2026-05-01 14:00:00 (now)"
    assert times.both(None, NOW) == "-"


def test_naive_times__are_those_of_a_project_without_time_zones(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    assert times.iso(datetime(2026, 5, 1, 21, 0)) == "2026-05-01T12:00:00+00:00"  # noqa: DTZ001
