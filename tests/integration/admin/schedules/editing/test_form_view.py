"""The pages that add and change a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker.models import Schedule
from tests.support.schedule_forms import errors

pytestmark = pytest.mark.django_db


def make(**values: Any) -> Schedule:
    given = {"name": "nightly", "task": "reports:plain", "cron": "0 9 * * 1-5", "time_zone": "Europe/Berlin"}
    schedule = Schedule(**{**given, **values})
    schedule.save()
    schedule.refresh_from_db()
    return schedule


class TestAdd:
    def test_saves_all_that_the_form_has(self, client_of: Any) -> None:
        client = client_of("reports:send", name="maria")
        response = client.add(
            task="reports:send",
            payload_of="reports:send",
            payload_as="fields",
            description="For the board",
            starts_at="2030-01-01T00:00",
            ends_at="2031-01-01T00:00:30",
            missed="all",
            missed_within="2 days",
            overlap="skip",
            queue_name="slow",
            priority="5",
            max_attempts="3",
            job_key="nightly",
            **{"payload-month": "5", "payload-format": '"csv"', "payload-since": "2026-05-01", "payload-tags": '["a"]'},
        )
        assert response.status_code == 302, errors(response)
        schedule = Schedule.objects.get()
        assert schedule.payload == {"month": 5, "format": "csv", "since": "2026-05-01", "tags": ["a"]}
        assert (schedule.cron, schedule.interval, schedule.run_at) == ("0 9 * * 1-5", None, None)
        assert schedule.starts_at == datetime(2029, 12, 31, 23, tzinfo=UTC)
        assert schedule.ends_at == datetime(2030, 12, 31, 23, 0, 30, tzinfo=UTC)
        assert (schedule.missed, schedule.missed_within, schedule.overlap) == ("all", timedelta(days=2), "skip")
        options = (schedule.queue_name, schedule.priority, schedule.max_attempts, schedule.job_key)
        assert options == ("slow", 5, 3, "nightly")
        assert (schedule.description, schedule.changed_by, schedule.is_enabled) == ("For the board", "maria", True)
