"""The list of schedules."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from django_graphile_worker import task
from django_graphile_worker.registry import tasks
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, text
from tests.support.schedule_rows import make_run, make_schedule


def test_rows__say_in_words_what_each_does(admin_page: Client) -> None:
    make_schedule("Morning report", "send_receipt", cron="0 9 * * 1-5", time_zone="Europe/Berlin", description="For Ada")
    make_schedule("Poll", "send_receipt", interval="10 seconds")
    shown = text(admin_page.get(pages.SCHEDULES))
    assert re.search(r"Morning report .*For Ada At 09:00, on Monday to Friday \(Europe/Berlin\) 0 9 \* \* 1-5", shown)
    assert "Every 10 seconds 10s" in shown
