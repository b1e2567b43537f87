"""What the overview says about schedules."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from tests.support import admin_pages as pages
from tests.support.admin_pages import text
from tests.support.factories import make_failed_job, make_job
from tests.support.schedule_rows import make_run, make_schedule

pytestmark = pytest.mark.django_db


def tiles(client: Client) -> dict[str, Any]:
    return {tile.label: tile for tile in client.get(pages.OVERVIEW).context["tiles"]}


def test_tiles__count_what_fails_and_what_missed_times(admin_page: Client) -> None:
    assert not {"Schedules failing", "Schedules missed"} & tiles(admin_page).keys()
    now = datetime.now(UTC)
    for name in ("a", "b"):
        job = make_failed_job("send_receipt", error="x")
        make_run(make_schedule(name, last_job_id=job), job_id=job)
    retried = make_job("send_receipt", attempts=2, last_error="x")
    make_run(make_schedule("retried", last_job_id=retried), job_id=retried)
    make_schedule("c", last_missed_at=now - timedelta(hours=1))
    make_schedule("d", last_missed_at=now - timedelta(hours=25))
    make_run(None, item="count_orders", kind="missed")
    shown = tiles(admin_page)
    assert (shown["Schedules failing"].value, shown["Schedules missed"].value) == ("3", "2")
    # Each number leads to as many rows.
    for label, number in (("Schedules failing", 3), ("Schedules missed", 2)):
        assert len(admin_page.get(shown[label].url).context["rows"]) == number
    assert "3 schedules are failing." in text(admin_page.get(pages.OVERVIEW))


def test_late_schedule__is_a_problem(admin_page: Client) -> None:
    make_schedule("hourly", next_at=datetime.now(UTC) - timedelta(minutes=44))
    make_schedule("on time")
    shown = text(admin_page.get(pages.OVERVIEW))
    assert re.search(r"Schedule late: hourly was due 4[34] min ago\.", shown)
