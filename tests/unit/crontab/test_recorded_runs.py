from __future__ import annotations

from datetime import UTC, datetime

import pytest

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.recorded_runs import flags_of_run

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "zone", "days"),
    [
        ("0 4 * * *", None, 24),
        ("0 4 * * *", "Europe/Berlin", 24),
        ("0 9,10 * * *", None, 12),
        ("0 9 * * 1", None, 168),
        ("0 4 1 1 *", None, 399),
    ],
)
def test_outcome__is_kept_for_about_25_runs(pattern: str, zone: str | None, days: float) -> None:
    (flag,) = flags_of_run(CronItem("report", pattern, time_zone=zone), NOON)
    seconds = int(flag.removeprefix("crontab:"))
    assert days <= seconds / 86_400 <= days + 7


def test_flags_of_the_item__come_first() -> None:
    assert flags_of_run(CronItem("report", "* * * * *", flags=("slow",)), NOON) == ["slow", "crontab:3600"]


def test_callable__is_not_called() -> None:
    def match(minute: datetime) -> bool:
        raise AssertionError("called")

    assert flags_of_run(CronItem("report", match), NOON) == ["crontab:2592000"]
