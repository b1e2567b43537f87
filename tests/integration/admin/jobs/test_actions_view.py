"""Actions on selected jobs, and on all that match a search."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client

from django_graphile_worker import signals
from django_graphile_worker.models import Job
from tests.support import admin_pages as pages
from tests.support.admin_pages import StatementRecorder, act, act_on_all, log_entries, messages, text
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.rows import in_quotes, query


def test_running_jobs_are_skipped_and_counted(admin_page: Client) -> None:
    free, running = make_job("send"), make_job("send", locked_by="worker")
    reported = messages(act(admin_page, "complete", free, running, 777_777, confirmed="1"))
    assert reported == [
        "Completed: 1 job.",
        "1 job was skipped, because a worker is running it.",
        "1 job no longer exists.",
    ]
    assert list(Job.objects.values_list("pk", flat=True)) == [running]


def test_all_that_match_asks_with_the_number_and_does_it_in_one_statement(admin_page: Client) -> None:
    for _ in range(130):
        make_failed_job("send", error="KeyError: 'x'")
    other = make_failed_job("charge", error="KeyError: 'x'")
    asked = act_on_all(admin_page, "run", "task:send", state="failed")
    assert "All jobs that match “Failed task:send”: 130." in text(asked)
    recorder = StatementRecorder()
    with connection.execute_wrapper(recorder):
        act_on_all(admin_page, "run", "task:send", state="failed", confirmed="1")
    assert sum("gw:reschedule-all" in statement for statement in recorder.statements) == 1
    assert Job.objects.filter(is_available=True).count() == 130
    assert not Job.objects.get(pk=other).is_available
    ((name, message),) = log_entries()
    assert name == "130 jobs"
    assert message.startswith("Run now. Search: Failed task:send. Jobs: #")


def test_all_that_match_is_refused_when_the_search_has_a_mistake(admin_page: Client) -> None:
    job_id = make_job("send")
    response = act_on_all(admin_page, "remove", "tusk:send", confirmed="1")
    assert "tusk:send: expected one of" in messages(response)[0]
    assert Job.objects.filter(pk=job_id).exists()


def test_a_mistyped_search_never_means_the_whole_tab(admin_page: Client) -> None:
    """The form of the page must contain the mistake, or the action would have no reason to be refused."""
    ids = {make_failed_job("send"), make_failed_job("charge")}
    page = admin_page.get(pages.JOBS, {"q": "taks:send", "state": "failed"})
    assert 'name="all"' not in pages.body(page)
    sent = pages.fields(page)
    assert sent["q"] == "taks:send"
    response = act_on_all(admin_page, "run", sent["q"], state=sent["state"], confirmed="1")
    assert response.status_code == 200
    (reported,) = messages(response)
    assert "No jobs were changed" in reported
    assert "taks:send: expected one of" in reported
    assert response.context["query"] == "taks:send", "to be corrected where it was written"
    assert set(Job.objects.filter(is_available=False).values_list("pk", flat=True)) == ids


def test_an_unknown_state_never_means_all_states(admin_page: Client) -> None:
    make_job("send")
    (reported,) = messages(act_on_all(admin_page, "remove", "task:send", state="faild", confirmed="1"))
    assert "state: expected one of ready" in reported
    assert Job.objects.count() == 1


def test_all_in_each_state(admin_page: Client) -> None:
    jobs = {
        "ready": make_job("send"),
        "scheduled": make_job("send", run_at=minutes_ago(-9)),
        "retrying": make_job("send", run_at=minutes_ago(-9), attempts=1, last_error="no"),
        "failed": make_failed_job("send"),
        "running": make_job("send", locked_by="worker"),
    }
    for state in ("ready", "scheduled", "retrying", "failed"):
        act_on_all(admin_page, "complete", state=state, confirmed="1")
        del jobs[state]
        assert set(Job.objects.values_list("pk", flat=True)) == set(jobs.values())
    assert "skipped" in messages(act_on_all(admin_page, "complete", state="running", confirmed="1"))[0]


def test_a_missing_selection_is_reported(admin_page: Client) -> None:
    make_job("send")
    assert messages(act(admin_page, "run")) == ["Select jobs, or all that match."]
    assert messages(act(admin_page, "", 1)) == ["Select an action."]


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_redirects_to_this_site_only(admin_page: Client, back: str) -> None:
    response = admin_page.post(pages.ACT, {"action": "run", "id": make_job("send"), "back": back})
    assert response["Location"].startswith(pages.JOBS)


class TestCancelling:
    OURS = "django-worker-0123456789abcdef01/7"

    def test_a_button_stops_a_running_job(self, admin_page: Client, worker_schema: str) -> None:
        job_id = make_job("send", locked_by=self.OURS, attempts=1)
        page = admin_page.get(pages.job_url(job_id))
        assert [action.name for action in page.context["actions"]] == ["cancel"]
        asked = act(admin_page, "cancel", job_id, back=pages.job_url(job_id))
        assert "Jobs that run are stopped: their workers are told now." in text(asked)
        assert "are skipped" not in text(asked)
        done = act(admin_page, "cancel", job_id, back=pages.job_url(job_id), confirmed="1", reason="sent twice")
        assert messages(done) == ["Cancelled: 1 job.", "1 of them is running: its worker is told to stop it."]
        table = f"{in_quotes(worker_schema)}._private_stop_requests"
        assert query(f"select job_id, reason, requested_by from {table}") == [(job_id, "sent twice", "root")]
        assert "This job was cancelled. Its worker is told to stop it." in text(done)
        assert "Cancelled by root Reason sent twice" in text(done)
        assert done.context["actions"] == []
        assert log_entries() == [(f"#{job_id}", "Cancelled. Reason: sent twice")]

    def test_selected_jobs_in_every_state(self, admin_page: Client, django_capture_on_commit_callbacks: Any) -> None:
        waiting, running = make_job("send", {"n": 1}), make_job("send", locked_by=self.OURS, attempts=1)
        node, failed = make_job("send", locked_by="node-worker", attempts=1), make_failed_job("send")
        told: list[Any] = []

        def receiver(**arguments: Any) -> None:
            told.append(arguments)

        signals.job_cancelled.connect(receiver)
        try:
            with django_capture_on_commit_callbacks(execute=True):
                done = act(admin_page, "cancel", waiting, running, node, failed, 777_777, confirmed="1", reason="twice")
        finally:
            signals.job_cancelled.disconnect(receiver)
        assert messages(done) == [
            "Cancelled: 2 jobs.",
            "1 of them is running: its worker is told to stop it.",
            f"1 job is run by a worker of Node.js, which cannot be told to stop: #{node}. It is not retried.",
            "1 job was skipped, because it has ended.",
            "1 job no longer exists.",
        ]
        assert set(Job.objects.values_list("pk", flat=True)) == {running, node, failed}
        assert [(each["job"].id, each["job"].payload) for each in told] == [(waiting, {"n": 1})]
        assert (told[0]["reason"], told[0]["cancelled_by"]) == ("twice", "root")
        assert {name for name, _ in log_entries()} == {f"#{waiting}", f"#{running}"}

    def test_all_that_match(self, admin_page: Client) -> None:
        for _ in range(5):
            make_job("send")
        kept, running = make_job("charge"), make_job("send", locked_by=self.OURS, attempts=1)
        done = act_on_all(admin_page, "cancel", "task:send", confirmed="1")
        assert messages(done)[0] == "Cancelled: 6 jobs."
        assert set(Job.objects.values_list("pk", flat=True)) == {kept, running}

    def test_needs_its_permission(self, client: Client, django_user_model: Any) -> None:
        user = django_user_model.objects.create_user("clerk", is_staff=True)
        names = ["view_job", "complete_job", "reschedule_job"]
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        client.force_login(user)
        job_id = make_job("send")
        assert client.post(pages.ACT, {"action": "cancel", "id": job_id, "confirmed": "1"}).status_code == 403
        user.user_permissions.add(Permission.objects.get(codename="cancel_job"))
        assert messages(act(client, "cancel", job_id, confirmed="1")) == ["Cancelled: 1 job."]
