"""The list of schedules."""

from __future__ import annotations

import re

from django.test import Client

from tests.support import admin_pages as pages
from tests.support.admin_pages import text
from tests.support.schedule_rows import make_schedule


def test_rows__say_in_words_what_each_does(admin_page: Client) -> None:
    make_schedule(
        "Morning report", "send_receipt", cron="0 9 * * 1-5", time_zone="Europe/Berlin", description="For Ada"
    )
    make_schedule("Poll", interval="10 seconds")
    shown = text(admin_page.get(pages.SCHEDULES))
    assert re.search(r"Morning report .*For Ada Every weekday at 09:00 \(Europe/Berlin\) 0 9 \* \* 1-5", shown)
    assert "Every 10 seconds 10s" in shown
