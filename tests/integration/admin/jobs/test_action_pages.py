"""Actions on selected jobs, and on all that match a search."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client

from django_graphile_worker import pause, resume, signals
from django_graphile_worker.admin.jobs import action_texts
from django_graphile_worker.admin.jobs.job_actions import ACTIONS
from django_graphile_worker.models import Job
from tests.support import admin_pages as pages
from tests.support.admin_pages import StatementRecorder, act, act_on_all, log_entries, messages, text
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute
from tests.support.rows import in_quotes, query


def test_running_jobs_are_skipped_and_counted(admin_page: Client) -> None:
    free, running = make_job("send"), make_job("send", locked_by="worker")
    reported = messages(act(admin_page, "delete", free, running, 777_777, confirmed="1"))
    assert reported == [
        "1 job was deleted.",
        "1 job was skipped, because a worker is running it.",
        "1 job no longer exists.",
    ]
    assert list(Job.objects.values_list("pk", flat=True)) == [running]


def test_all_that_match_asks_with_the_number_and_does_it_in_one_statement(admin_page: Client) -> None:
    for _ in range(130):
        make_failed_job("send", error="KeyError: 'x'")
    other = make_failed_job("charge", error="KeyError: 'x'")
    asked = act_on_all(admin_page, "retry", "task:send", state="failed")
    assert asked.context["title"] == "Retry 130 jobs?"
    assert "Search: Failed task:send" in text(asked)
    recorder = StatementRecorder()
    with connection.execute_wrapper(recorder):
        act_on_all(admin_page, "retry", "task:send", state="failed", confirmed="1")
    assert sum("gw:retry-all" in statement for statement in recorder.statements) == 1
    assert Job.objects.filter(is_available=True).count() == 130
    assert not Job.objects.get(pk=other).is_available
    ((name, message),) = log_entries()
    assert name == "130 jobs"
    assert re.fullmatch(r"Retried\. Search: Failed task:send\. Jobs: (#\d+, ){4}#\d+ and 125 more\.", message)


def test_all_that_match_is_no_job_when_the_search_has_an_error(admin_page: Client) -> None:
    """The search without the condition would have more jobs, up to the whole tab."""
    ids = {make_failed_job("send"), make_failed_job("charge")}
    page = admin_page.get(pages.JOBS, {"q": "taks:send", "state": "failed"})
    assert "taks:send: The conditions are id:, key:, task:" in text(page)
    assert "Nothing is shown until the search is corrected." in text(page)
    assert page.context["cl"].query == "taks:send", "to be corrected where it was written"
    act_on_all(admin_page, "retry", "taks:send", state="failed", confirmed="1")
    assert set(Job.objects.filter(is_available=False).values_list("pk", flat=True)) == ids
    response = admin_page.post(pages.ACT, {"action": "retry", "all": "1", "q": "taks:send"}, follow=True)
    assert "No jobs were changed: the search has an error." in messages(response)[0]
    assert set(Job.objects.filter(is_available=False).values_list("pk", flat=True)) == ids


def test_an_unknown_state_never_means_all_states(admin_page: Client) -> None:
    make_job("send")
    page = admin_page.get(pages.JOBS, {"state": "faild"})
    assert page.status_code in (200, 302)
    act_on_all(admin_page, "delete", "task:send", state="faild")
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
        act_on_all(admin_page, "delete", state=state, confirmed="1")
        del jobs[state]
        assert set(Job.objects.values_list("pk", flat=True)) == set(jobs.values())
    # Of a running job, only Cancel is offered.
    assert messages(act_on_all(admin_page, "delete", state="running", confirmed="1")) == ["No action selected."]
    assert Job.objects.count() == 1


def test_a_missing_selection_is_reported(admin_page: Client) -> None:
    make_job("send")
    assert messages(act(admin_page, "run_now")) == ["Select jobs, or all that match."]
    assert messages(act(admin_page, "", 1)) == ["Nothing was changed. Select the jobs and the action again."]


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_redirects_to_this_site_only(admin_page: Client, back: str) -> None:
    response = admin_page.post(pages.ACT, {"action": "run_now", "id": make_job("send"), "back": back})
    assert response["Location"].startswith(pages.JOBS)


class TestCancelling:
    OURS = "django-worker-0123456789abcdef01/7"

    def test_a_button_stops_a_running_job(self, admin_page: Client, worker_schema: str) -> None:
        job_id = make_job("send", locked_by=self.OURS, attempts=1)
        page = admin_page.get(pages.job_url(job_id))
        assert [action.name for action in page.context["actions"]] == ["cancel"]
        asked = act(admin_page, "cancel", job_id, back=pages.job_url(job_id))
        assert "A job that runs is stopped: its worker is told now." in text(asked)
        assert "are skipped" not in text(asked)
        done = act(admin_page, "cancel", job_id, back=pages.job_url(job_id), confirmed="1", reason="sent twice")
        assert messages(done) == ["1 job was cancelled.", "1 of them is running: its worker is told to stop it."]
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
            "2 jobs were cancelled.",
            "1 of them is running: its worker is told to stop it.",
            f"1 job is run by a worker of Node.js, which cannot be told to stop: #{node}. It is not retried.",
            "1 job was skipped: its state is “Failed”.",
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
        assert messages(done)[0] == "6 jobs were cancelled."
        assert set(Job.objects.values_list("pk", flat=True)) == {kept, running}

    def test_needs_its_permission(self, client: Client, django_user_model: Any) -> None:
        user = django_user_model.objects.create_user("clerk", is_staff=True)
        names = ["view_job", "complete_job", "reschedule_job"]
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        client.force_login(user)
        job_id = make_job("send")
        assert client.post(pages.ACT, {"action": "cancel", "id": job_id, "confirmed": "1"}).status_code == 403
        user.user_permissions.add(Permission.objects.get(codename="cancel_job"))
        assert messages(act(client, "cancel", job_id, confirmed="1")) == ["1 job was cancelled."]


class TestConfirmation:
    def test_names_the_job_and_the_effect(self, admin_page: Client) -> None:
        job_id = make_job("send")
        asked = act(admin_page, "delete", job_id, back=pages.job_url(job_id))
        assert asked.context["title"] == f"Delete send #{job_id}?"
        crumbs = pages.body(asked).split('class="breadcrumbs"')[1].split("</div>")[0]
        assert f'<a href="{pages.JOBS}">Jobs</a>' in crumbs
        assert f'<a href="{pages.job_url(job_id)}"><bdi>send #{job_id}</bdi></a>' in crumbs

    def test_of_one_job_speaks_of_one_job(self, admin_page: Client) -> None:
        of_state = {
            "run_now": make_job("send", run_at=minutes_ago(-9)),
            "run_next": make_job("send"),
            "retry": make_failed_job("send"),
        }
        waiting = make_job("send")
        for name, action in ACTIONS.items():
            chosen = act(admin_page, name, of_state.get(name, waiting))
            if not action.needs_confirmation:
                continue
            said = text(chosen).split("No, take me back")[0].rsplit(f"send #{waiting}?")[1]
            assert not re.search(r"\b([Tt]he|[Tt]heir) jobs\b|\b[Jj]obs that\b|\bthey\b", said), said
            assert ("It is skipped if a worker is running it." in said) != action.changes_running
        several = text(act(admin_page, "delete", waiting, make_job("send")))
        assert "The jobs are deleted, and do not run." in several
        assert "Jobs that a worker is running are skipped." in several

    def test_says_how_many_jobs_of_which_state_it_changes(self, admin_page: Client) -> None:
        make_job("send"), make_job("send", run_at=minutes_ago(-9)), make_job("send", run_at=minutes_ago(-9))
        make_job("send", run_at=minutes_ago(-9), attempts=1, last_error="no"), make_failed_job("send")
        make_job("send", locked_by="worker")
        asked = act_on_all(admin_page, "run_now", state="all")
        assert asked.context["title"] == "Run 3 jobs now?"
        assert "Changed: 2 scheduled, 1 retrying." in text(asked)
        assert act_on_all(admin_page, "delete", state="all").context["title"] == "Delete 5 jobs?"
        chosen = act(admin_page, "delete", *Job.objects.values_list("pk", flat=True))
        assert (chosen.context["title"], chosen.context["untouched"]) == ("Delete 5 jobs?", "1 running")

    def test_of_many_jobs_asks_to_type_the_number(self, admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(action_texts, "MAX_UNTYPED", 3)
        for _ in range(5):
            make_job("send")
        asked = act_on_all(admin_page, "delete", "task:send")
        assert "Type 5 to confirm the number of jobs:" in text(asked)
        for typed in ({}, {"typed": ""}, {"typed": "4"}):
            again = admin_page.post(pages.action_url(asked), typed, follow=True)
            assert "Type 5 to confirm" in text(again)
            assert Job.objects.count() == 5
        admin_page.post(pages.action_url(asked), {"typed": "5"})
        assert not Job.objects.exists()

    def test_is_about_the_jobs_that_are_changed(self, admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever jobs are added, and become due, while the user reads the question."""
        monkeypatch.setattr(action_texts, "MAX_UNTYPED", 3)
        gone, *_ = [make_job("send") for _ in range(5)]
        later = make_job("send", run_at=minutes_ago(-9))
        asked = act_on_all(admin_page, "reschedule", "task:send", state="ready")
        assert asked.context["title"] == "Reschedule 5 jobs?"
        make_job("send")
        execute("update {schema}._private_jobs set run_at = now() where id = %s", [later])
        execute("delete from {schema}._private_jobs where id = %s", [gone])
        url, sent = pages.action_url(asked), {"priority": "7"}
        again = admin_page.post(url, {**sent, "typed": "4"})
        assert (again.context["title"], again.context["typed_number"]) == ("Reschedule 5 jobs?", "5")
        done = admin_page.post(url, {**sent, "typed": "5"}, follow=True)
        assert pages.messages(done) == [
            "4 jobs were rescheduled.",
            "1 job was skipped, because it has ended meanwhile.",
        ]
        assert Job.objects.filter(priority=7).count() == 4

    def test_of_a_job_that_has_started_does_not_say_that_it_is_deleted(self, admin_page: Client) -> None:
        job_id = make_job("send", locked_by="worker")
        asked = act(admin_page, "delete", job_id)
        said = text(asked)
        assert asked.context["title"] == f"“Delete” is not possible for send #{job_id}"
        assert "Nothing would be changed: its state is “Running”." in said
        assert "is deleted" not in said


def test_each_list_offers_only_what_can_work(admin_page: Client) -> None:
    jobs = {
        "ready": make_job("send"),
        "scheduled": make_job("send", run_at=minutes_ago(-9)),
        "retrying": make_job("send", run_at=minutes_ago(-9), attempts=1, last_error="no"),
        "failed": make_failed_job("send"),
        "running": make_job("send", locked_by="worker"),
    }
    offered = {
        "ready": ["run_next", "reschedule", "fail", "delete"],
        "scheduled": ["run_now", "reschedule", "fail", "delete"],
        "retrying": ["run_now", "reschedule", "fail", "delete"],
        "failed": ["retry", "reschedule", "delete"],
        "running": ["cancel"],
    }
    for state, job_id in jobs.items():
        listed = admin_page.get(pages.JOBS, {"state": state})
        choices = listed.context["action_form"].fields["action"].choices
        assert [name for name, _ in choices if name] == offered[state]
        page = admin_page.get(pages.job_url(job_id))
        assert [action.name for action in page.context["actions"]] == offered[state]
        edit_url = f"{pages.JOBS}{job_id}/edit/"
        assert (edit_url in pages.body(page)) is (state == "failed")


def test_run_next__is_refused_if_no_priority_is_lower(admin_page: Client) -> None:
    make_job("send", priority=-32768)
    job_id = make_job("send")
    (reported,) = messages(act(admin_page, "run_next", job_id))
    assert "A job that waits has the priority -32768, the lowest of all" in reported
    assert Job.objects.get(pk=job_id).priority == 0


def test_jobs_of_a_pause__are_not_said_to_run_now(admin_page: Client) -> None:
    pause(queue="mails", reason="Provider down", by="demo", create=True)
    pause(task="charge", by="ann", create=True)
    in_queue, of_task = make_failed_job("send", queue_name="mails"), make_failed_job("charge", queue_name="mails")
    (said,) = messages(act(admin_page, "retry", in_queue))
    assert said.startswith("1 job is due, and starts when its pause ends: Paused by demo: Provider down.")
    (said,) = messages(act(admin_page, "retry", of_task, make_failed_job("send"), make_failed_job("send")))
    assert said.startswith("3 jobs will be retried now. 1 of them is paused, and starts when its pause ends: Paused")
    resume(queue="mails")
    later = make_job("charge", run_at=minutes_ago(-9))
    (said,) = messages(act(admin_page, "run_now", later))
    assert said.startswith("1 job is due, and starts when its pause ends: Paused by ann.")
    (said,) = messages(act(admin_page, "run_now", make_job("send", run_at=minutes_ago(-9))))
    assert said.startswith("1 job will run now.")
