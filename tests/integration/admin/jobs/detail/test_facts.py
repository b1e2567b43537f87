"""The table of details on the page of a job."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_graphile_worker import pause
from django_graphile_worker.admin import formatting
from tests.support.admin_pages import body, job_url, make_worker, text
from tests.support.factories import make_job, make_queue, minutes_ago


def test_shows_the_job_that_its_queue_waits_for(admin_page: Client) -> None:
    running = make_job("charge", queue_name="eu", locked_by="worker-1", locked_at=minutes_ago(2))
    make_queue("eu", locked_by="worker-1", locked_at=minutes_ago(2))
    first = make_job("send", queue_name="eu", run_at=minutes_ago(5))
    second = make_job("send", queue_name="eu", run_at=minutes_ago(1))
    shown = text(admin_page.get(job_url(second)))
    assert "worker-1 has held the queue since" in shown
    assert f"charge #{running}" in shown
    assert "Jobs ahead in the queue 1" in shown
    assert "Jobs ahead" not in text(admin_page.get(job_url(first)))


def test_shows_the_worker_and_no_action_but_cancel_while_running(admin_page: Client) -> None:
    worker = make_worker("django-worker-7", silent=3)
    shown = admin_page.get(job_url(make_job("send", locked_by=worker)))
    assert "django-worker-7 (last heartbeat" in text(shown)
    assert re.findall('name="action" value="([^"]*)"', body(shown)) == ["cancel"]


def test_shows_the_label_of_a_django_task(admin_page: Client) -> None:
    shown = text(admin_page.get(job_url(make_job("shop.tasks.send@emails"))))
    assert "Task shop.tasks.send " in shown
    assert "Label emails" in shown
    assert "Label" not in text(admin_page.get(job_url(make_job("shop.tasks.send"))))


def test_shows_when_the_job_expires_and_not_the_flag_that_says_so(admin_page: Client) -> None:
    expiring = make_job("send", flags={"expires:4070908800": True, "slow": True})
    shown = text(admin_page.get(job_url(expiring)))
    assert re.search(r"Expires .*2099", shown)
    assert "Flags slow Workers" in shown
    assert "Expires" not in text(admin_page.get(job_url(make_job("send", flags={"expires:infinity": True}))))


def test_shows_the_schedule_and_not_the_flag_that_says_so(admin_page: Client) -> None:
    shown = text(admin_page.get(job_url(make_job("send", flags={"schedule:17:90000": True, "slow": True}))))
    assert "Schedule #17" in shown
    assert "Flags slow Workers" in shown
    assert ":90000" not in shown
    assert "Flags" not in text(admin_page.get(job_url(make_job("send", flags={"crontab:90000": True}))))


@pytest.mark.parametrize("paused", [{"queue": "mails"}, {"task": "send"}, {"flag": "slow"}])
def test_shows_the_pause_that_the_job_waits_for(admin_page: Client, paused: dict[str, Any]) -> None:
    job_id = make_job("send", queue_name="mails", flags={"slow": True})
    (kind,) = paused
    pause(**paused, reason="Provider down", by="demo", create=True)
    shown = text(admin_page.get(job_url(job_id)))
    assert f"{kind.capitalize()} paused Paused by demo: Provider down" in shown
    assert "has held the queue" not in shown
    assert "paused:" not in shown
    assert "paused Paused" not in text(admin_page.get(job_url(make_job("other"))))


def test_shows_until_when_its_queue_is_paused(admin_page: Client) -> None:
    job_id = make_job("send", queue_name="mails")
    until: Any = timezone.now() + timedelta(days=400)
    pause(queue="mails", until=until)
    assert f"Queue paused Paused (until {formatting.exact_time(until)})" in text(admin_page.get(job_url(job_id)))
