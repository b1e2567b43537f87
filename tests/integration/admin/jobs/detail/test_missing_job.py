"""The page of a job that does not exist: what became of it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker.sql.results import HistoryOutcome, ResultStatus
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import act, text
from tests.support.factories import make_job, minutes_ago
from tests.support.history import make_attempt
from tests.support.operating import execute
from tests.support.results import store_result

# How a time of this moment is shown, on a busy machine too.
JUST_NOW = r"(now|[\d.]+ s ago)"
ERROR = "ValueError: token=hunter2\n\nTraceback (most recent call last):\nValueError"


@pytest.fixture
def ended() -> int:
    job_id = make_job("send")
    execute("delete from {schema}._private_jobs where id = %s", [job_id])
    return job_id


def _attempt(schema: str, job_id: int, outcome: HistoryOutcome, **columns: Any) -> None:
    with connection.cursor() as cursor:
        make_attempt(cursor, schema, job_id, outcome=outcome, task_identifier="send", **columns)


@pytest.mark.parametrize(
    ("outcome", "error", "expected"),
    [
        (HistoryOutcome.SUCCEEDED, None, "Succeeded in 5.0 s 1"),
        (HistoryOutcome.CANCELLED, "Cancelled by maria: sent twice", "Cancelled by maria 1"),
        (HistoryOutcome.CANCELLED, "Cancelled.", "Cancelled 1"),
        (HistoryOutcome.EXPIRED, None, "No worker had started it in time."),
        (HistoryOutcome.REMOVED_BY_OPERATOR, None, "Deleted 1"),
        (HistoryOutcome.PERMANENTLY_FAILED, ERROR, "Failed, then deleted"),
        (HistoryOutcome.FAILED, ERROR, "It ended or was deleted"),
    ],
)
def test_history__tells_the_end(
    admin_page: Client, worker_schema: str, ended: int, outcome: HistoryOutcome, error: str | None, expected: str
) -> None:
    at = minutes_ago(1)
    _attempt(worker_schema, ended, outcome, error=error, ended_at=at, started_at=at - timedelta(seconds=5))
    shown = text(admin_page.get(pages.job_url(ended)))
    assert f"send #{ended}" in shown
    assert expected in shown
    assert "Worker django-worker-1" in shown


@pytest.mark.parametrize(
    ("status", "value", "expected"),
    [
        (ResultStatus.SUCCEEDED, {"rows": 1}, r"Succeeded in 1\.0 s"),
        (ResultStatus.CANCELLED, {"by": "maria", "reason": "sent twice"}, rf"Cancelled by maria {JUST_NOW} sent twice"),
        (ResultStatus.EXPIRED, None, rf"Expired {JUST_NOW} No worker"),
        (ResultStatus.FAILED, None, "Failed, then deleted"),
        (ResultStatus.REMOVED, None, rf"Deleted {JUST_NOW}"),
    ],
)
def test_kept_result__tells_the_end(
    admin_page: Client, worker_schema: str, ended: int, status: ResultStatus, value: Any, expected: str
) -> None:
    with connection.cursor() as cursor:
        store_result(cursor, ended, worker_schema, task="send", status=status, value=value)
    response = admin_page.get(pages.job_url(ended))
    assert response.status_code == 200
    assert re.search(expected, text(response))


def test_log__tells_who_deleted_it(admin_page: Client) -> None:
    job_id = make_job("send")
    act(admin_page, "delete", job_id, confirmed="1")
    response = admin_page.get(pages.job_url(job_id))
    assert response.status_code == 200
    assert "Deleted by root" in text(response)


def test_error__is_redacted(client_with: MakeClient, worker_schema: str, ended: int) -> None:
    _attempt(worker_schema, ended, HistoryOutcome.PERMANENTLY_FAILED, error=ERROR)
    shown = text(client_with().get(pages.job_url(ended)))
    assert "Failed, then deleted" in shown
    assert "hunter2" not in shown


def test_users_who_see_some_jobs__cannot_tell_ended_jobs_from_others(
    admin_page: Client, settings: Any, ended: int
) -> None:
    hidden = make_job("send")
    settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
    shown = {
        text(admin_page.get(f"/restricted/graphile_worker/job/{job_id}/change/")).replace(str(job_id), "7")
        for job_id in (ended, hidden, 10**9)
    }
    assert len(shown) == 1
    assert "It has ended, or you may not see it." in shown.pop()
