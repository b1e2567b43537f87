"""What Sentry is told about schedules."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker.signals import FiringSchedule
from django_graphile_worker.telemetry.sentry import monitor_headers, slug_of


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("nightly report", "nightly-report"),
        ("shop.tasks:Send", "shop-tasks-send"),
        ("täglich", "taglich"),
        ("x" * 60, "x" * 50),
        ("報告", "schedule-e8bc5ed5"),
        ("2026", "schedule-7dc7cb4e"),
    ],
)
def test_slug(name: str, slug: str) -> None:
    assert slug_of(name) == slug


@pytest.mark.parametrize(
    ("cron", "interval", "expected"),
    [
        ("@midnight", None, {"type": "crontab", "value": "0 0 * * *"}),
        ("0 9 * * MON-FRI", None, {"type": "crontab", "value": "0 9 * * MON-FRI"}),
        ("0 9 1 * 1", None, None),
        (None, timedelta(minutes=90), {"type": "interval", "value": 90, "unit": "minute"}),
        (None, timedelta(days=2), {"type": "interval", "value": 2, "unit": "day"}),
        (None, timedelta(seconds=30), None),
        (None, None, None),
    ],
)
def test_times_that_sentry_can_expect(cron: str | None, interval: timedelta | None, expected: Any) -> None:
    headers = monitor_headers(FiringSchedule("name", cron, interval, "UTC"))
    config = json.loads(headers["sentry-monitor-config"]) if headers else {"schedule": None}
    assert config["schedule"] == expected
