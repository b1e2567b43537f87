"""The timeline of a job."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from django_graphile_worker import cancel_jobs
from django_graphile_worker.exceptions import PermanentFailure
from django_graphile_worker.models import Job
from tests.support import admin_pages as pages
from tests.support.admin_pages import act, job_url, text
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.limits import make_key, park_job
from tests.support.operating import execute

PATH = "django_graphile_worker.exceptions.PermanentFailure"


class StolenCard(PermanentFailure):
    """A subclass that a project defines."""


def _timeline(client: Client, job_id: int) -> list[Any]:
    return list(client.get(job_url(job_id)).context["timeline"])


def test_shows_when_a_job_failed(admin_page: Client) -> None:
    """Without a history or a result, only the last change of the job is known."""
    columns: dict[str, Any] = {"attempts": 2, "last_error": "no", "run_at": minutes_ago(-60)}
    job_id = make_job("send", **columns, created_at=minutes_ago(90), updated_at=minutes_ago(30))
    (event,) = [event for event in _timeline(admin_page, job_id) if event.label == "2 attempts failed"]
    assert (event.detail, event.time) == ("when the job was last changed", Job.objects.get(pk=job_id).updated_at)


def test_shows_what_a_user_did(admin_page: Client) -> None:
    job_id = make_job("send", run_at=minutes_ago(1), priority=3)
    make_job("send", run_at=minutes_ago(2))
    act(admin_page, "run_next", job_id)
    assert _timeline(admin_page, job_id)[-1].label == "Run next"


def test_running_job_that_is_cancelled__shows_no_number_of_attempts(admin_page: Client) -> None:
    """Cancelling uses up the attempts, however often the job ran."""
    job_id = make_job("send", attempts=1, locked_at=minutes_ago(1), locked_by="django-worker-0123456789abcdef01/7")
    cancel_jobs([job_id])
    assert {event.label for event in _timeline(admin_page, job_id)} == {"Created", "Running"}
    assert "Attempt 25" not in text(admin_page.get(job_url(job_id)))


def test_job_that_waits_for_no_limit__waits_for_its_turn(admin_page: Client) -> None:
    job_id = park_job(make_key("fair:{tenant}", "7"), "send")
    execute("update {schema}._private_limit_lanes set state = 1, blocked_by = null, blocked_at = null")
    assert {event.label for event in _timeline(admin_page, job_id)} == {"Created", "Waiting for its turn"}


class TestWhyNoMoreAttempts:
    @pytest.mark.parametrize("name", [PATH, f"{StolenCard.__module__}.StolenCard"])
    def test_a_job_that_its_task_gave_up_shows_no_number_of_attempts(self, admin_page: Client, name: str) -> None:
        """Giving up sets the attempts to their maximum, however often the job ran."""
        job_id = make_failed_job("charge", error=f"{name}: stolen", attempts=3, max_attempts=3)
        shown = text(admin_page.get(pages.job_url(job_id)))
        assert "the task gave up" in shown
        assert "none left of 3" in shown
        assert "3 of 3" not in shown

    def test_a_job_that_a_user_failed_shows_the_attempts_that_were_made(self, admin_page: Client) -> None:
        job_id = make_job("charge", attempts=3, max_attempts=25, last_error="KeyError: 'x'\n" + "at\n" * 900)
        pages.act(admin_page, "fail", job_id, reason="no more", confirmed="1")
        shown = text(admin_page.get(pages.job_url(job_id)))
        assert "given up after attempt 3 of 25" in shown
        assert "25 of 25" not in shown
        listed = admin_page.get(pages.JOBS, {"state": "failed"})
        assert "3/25" in text(listed)
        assert len(pages.listed(admin_page.get(pages.JOBS, {"q": "attempts:3"}))) == 1
        # Retried and failed once more: the last of two remarks counts.
        pages.act(admin_page, "retry", job_id)
        pages.act(admin_page, "fail", job_id, confirmed="1")
        assert "given up after attempt 0 of 25" in text(admin_page.get(pages.job_url(job_id)))
        assert len(pages.listed(admin_page.get(pages.JOBS, {"q": "attempts:0"}))) == 1

    def test_a_job_that_used_all_attempts_shows_their_number(self, admin_page: Client) -> None:
        job_id = make_failed_job("charge", error="KeyError: 'x'", attempts=3, max_attempts=3)
        assert "no attempts left (3 of 3)" in text(admin_page.get(pages.job_url(job_id)))

    def test_a_job_that_is_retried_has_attempts_left(self, admin_page: Client) -> None:
        columns: dict[str, Any] = {"attempts": 1, "max_attempts": 3, "run_at": minutes_ago(-5)}
        job_id = make_job("charge", last_error=f"{PATH}: stolen", **columns)
        assert "1 of 3" in text(admin_page.get(pages.job_url(job_id)))
