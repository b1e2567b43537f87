"""Each action on jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from django_graphile_worker.models import Job
from tests.support.admin_pages import act, log_entries, messages, text
from tests.support.factories import make_failed_job, make_job, minutes_ago


def test_run_now_gives_a_failed_job_all_its_attempts_again(admin_page: Client) -> None:
    job_id = make_failed_job("send", run_at=minutes_ago(-60))
    assert messages(act(admin_page, "run", job_id)) == ["Run now: 1 job."]
    job = Job.objects.get(pk=job_id)
    assert (job.attempts, job.is_available) == (0, True)
    assert job.run_at <= timezone.now()
    assert log_entries() == [(f"#{job_id}", "Run now.")]


def test_reschedule_asks_and_changes_the_given_fields(admin_page: Client) -> None:
    job_id = make_failed_job("send", priority=3)
    asked = act(admin_page, "reschedule", job_id)
    assert "Empty fields leave the jobs unchanged." in text(asked)
    assert Job.objects.get(pk=job_id).attempts == 25
    then = (timezone.now() + timedelta(days=2)).replace(microsecond=0)
    given = {"run_at": f"{then:%Y-%m-%dT%H:%M:%S}", "attempts": "1", "max_attempts": "4"}
    assert messages(act(admin_page, "reschedule", job_id, confirmed="1", **given)) == ["Rescheduled: 1 job."]
    job = Job.objects.get(pk=job_id)
    assert (job.run_at, job.attempts, job.max_attempts, job.priority) == (then, 1, 4, 3)


@pytest.mark.parametrize(("action", "done"), [("complete", "Completed"), ("remove", "Removed")])
def test_complete_and_remove_ask_and_delete(admin_page: Client, action: str, done: str) -> None:
    job_id = make_job("send", key="a")
    assert "Jobs: 1." in text(act(admin_page, action, job_id))
    assert Job.objects.filter(pk=job_id).exists()
    assert f"{done}: 1 job." in messages(act(admin_page, action, job_id, confirmed="1"))
    assert not Job.objects.filter(pk=job_id).exists()
    assert LogEntry.objects.get().is_deletion()


def test_fail_keeps_the_reason(admin_page: Client) -> None:
    job_id = make_job("send")
    act(admin_page, "fail", job_id, confirmed="1", reason="Customer left; password=hunter2")
    job = Job.objects.get(pk=job_id)
    assert (job.attempts, job.last_error) == (25, "Customer left; password=hunter2")
    assert log_entries() == [(f"#{job_id}", "Failed. Reason: Customer left; password=••••••")]
