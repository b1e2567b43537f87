"""When jobs failed, in the list and on their pages."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client

from django_graphile_worker.models import Job
from tests.support import admin_pages as pages
from tests.support.admin_pages import act, text
from tests.support.factories import make_failed_job, minutes_ago
from tests.support.history import make_attempt
from tests.support.results import FAILED, store_result


def _failure(client: Client, job_id: int) -> Any:
    (event,) = [each for each in client.get(pages.job_url(job_id)).context["timeline"] if each.css_class == "failed"]
    return event


def _in_list(client: Client) -> str:
    (row,) = client.get(pages.JOBS, {"state": "failed"}).context["rows"]
    return str(row.time)


def _entry(user: User, object_id: str, at: datetime, flag: int = CHANGE) -> None:
    content_type = ContentType.objects.get_for_model(Job, for_concrete_model=False)
    LogEntry.objects.create(
        user=user, content_type=content_type, object_id=object_id, action_flag=flag, action_time=at, change_message="x"
    )


@pytest.fixture
def failed() -> int:
    """A job that failed an hour ago, of a task with its own back-off."""
    return make_failed_job("send", created_at=minutes_ago(90), updated_at=minutes_ago(60), run_at=minutes_ago(30))


def test_unchanged_job__failed_when_its_row_says(admin_page: Client, failed: int) -> None:
    assert _failure(admin_page, failed).time == Job.objects.get(pk=failed).updated_at
    assert "1 h ago" in text(admin_page.get(pages.job_url(failed)))
    assert _in_list(admin_page).startswith("<time")


def test_changed_job__failed_earlier_than_the_change(admin_page: Client, failed: int) -> None:
    act(admin_page, "reschedule", failed, priority="3", confirmed="1")
    event = _failure(admin_page, failed)
    assert str(event.relative_time).startswith("earlier than <time")
    assert "changed by root since" in event.detail
    assert _in_list(admin_page).startswith("earlier than <time")


def test_changed_job__failed_when_the_history_says(
    admin_page: Client, failed: int, settings: Any, worker_schema: str
) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "HISTORY": 86_400}
    at = minutes_ago(60)
    with connection.cursor() as cursor:
        make_attempt(cursor, worker_schema, failed, outcome=3, ended_at=at, error="It broke.")
    act(admin_page, "reschedule", failed, priority="3", confirmed="1")
    event = _failure(admin_page, failed)
    assert (event.time, "changed" in event.detail) == (at, False)


def test_changed_job__failed_when_its_result_says(admin_page: Client, failed: int, worker_schema: str) -> None:
    at = minutes_ago(60)
    attempt = {"ended_at": at.timestamp(), "started_at": at.timestamp() - 1, "traceback": "It broke."}
    with connection.cursor() as cursor:
        store_result(cursor, failed, worker_schema, status=FAILED, attempts=[attempt])
    act(admin_page, "reschedule", failed, priority="3", confirmed="1")
    assert abs(_failure(admin_page, failed).time - at) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("object_id", "minutes_later", "flag", "is_change"),
    [
        ("own", 0, CHANGE, True),
        ("own", 3, CHANGE, True),
        ("own", -3, CHANGE, False),
        ("own", 0, ADDITION, False),
        ("other", 0, CHANGE, False),
        # Many jobs share an entry without an id, which is as old as the first step.
        ("", -0.1, CHANGE, True),
        ("", 3, CHANGE, False),
    ],
)
def test_entry__is_the_change_if_it_is_not_older_than_the_row(
    admin_page: Client, failed: int, object_id: str, minutes_later: float, flag: int, is_change: bool
) -> None:
    updated_at = Job.objects.get(pk=failed).updated_at
    ids = {"own": str(failed), "other": str(failed + 1), "": ""}
    _entry(User.objects.get(), ids[object_id], updated_at + timedelta(minutes=minutes_later), flag)
    assert _in_list(admin_page).startswith("earlier than") is is_change


def test_failure_with_the_usual_back_off__needs_no_entry(admin_page: Client) -> None:
    """The row proves it, whatever happened at the same time."""
    at = minutes_ago(60)
    due = at + timedelta(seconds=math.exp(10))
    make_failed_job("send", created_at=minutes_ago(90), updated_at=at, run_at=due)
    _entry(User.objects.get(), "", at)
    assert _in_list(admin_page).startswith("<time")
