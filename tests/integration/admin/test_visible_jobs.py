"""A JobAdmin whose queryset leaves some jobs out restricts all pages and actions."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from django_graphile_worker.models import Job
from tests.integration.admin.restricted_site import MyJobsAdmin
from tests.support import admin_pages as pages
from tests.support.admin_pages import act, body, confirm, make_worker, text
from tests.support.admin_pages import listed as listed_jobs
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago
from tests.support.operating import execute


def _content_type() -> int:
    return ContentType.objects.get_for_model(Job, for_concrete_model=False).pk


class TestRestrictedByQueryset:
    @pytest.fixture(autouse=True)
    def restricted(self, settings: Any) -> None:
        settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
        self.base = "/restricted/graphile_worker/job/"

    def test_holds_for_lists_details_and_adding_again(self, admin_page: Client) -> None:
        mine, other = make_job("mine%a"), make_job("other")
        listed = text(admin_page.get(self.base))
        assert "mine%a" in listed
        assert f"#{other}" not in listed
        for state in ("ready", "failed", "running"):
            assert listed_jobs(admin_page.get(self.base, {"state": state, "q": "task:other"})) == []
        assert admin_page.get(f"{self.base}{mine}/change/").status_code == 200
        assert admin_page.get(f"{self.base}{other}/change/").status_code == 404
        assert admin_page.get(f"{self.base}add/", {"from": other}).status_code == 404
        assert admin_page.get(f"{self.base}{mine}/payload/").status_code == 200
        assert admin_page.get(f"{self.base}{other}/payload/").status_code == 404

    def test_ready_job__does_not_say_how_many_jobs_are_before_it(self, admin_page: Client) -> None:
        worker = make_worker("django-worker-1", tasks=["mine%a", "other"], concurrency=1)
        make_job("other", locked_by=worker)
        make_job("other", run_at=minutes_ago(9))
        page = admin_page.get(f"{self.base}{make_job('mine%a')}/change/")
        assert page.context["waiting"] == "The only slot of the workers that handle this task is busy."

    def test_holds_for_actions_on_ids_and_on_all(self, admin_page: Client) -> None:
        mine, other = make_job("mine%a"), make_job("other")
        pages.act(admin_page, "delete", other, confirmed="1", url=self.base + "act/")
        assert Job.objects.filter(pk=other).exists()
        for state in ("", "ready"):
            sent = {"action": "delete", "select_across": "1", "index": "0"}
            pages.confirm(admin_page, admin_page.post(f"{self.base}?state={state}", sent, follow=True))
        assert list(Job.objects.values_list("pk", flat=True)) == [other]
        assert not Job.objects.filter(pk=mine).exists()

    def test_errors_are_those_of_visible_jobs(self, admin_page: Client) -> None:
        make_failed_job("mine%a", error="KeyError: mine", updated_at=minutes_ago(9))
        latest = make_failed_job("mine%a", error="KeyError: latest of mine", updated_at=minutes_ago(2))
        make_job("mine%a", attempts=1, last_error="OSError: again", run_at=minutes_ago(-9))
        make_failed_job("other", error="KeyError: theirs, token=abc")
        make_failed_job("other", error="TheirsAlone: no")
        page = admin_page.get("/restricted/graphile_worker/errorgroup/")
        groups = {group["name"]: group for group in page.context["groups"]}
        assert set(groups) == {"KeyError", "OSError"}
        assert (groups["KeyError"]["number"], groups["KeyError"]["latest_id"]) == ("2", latest)
        assert (groups["OSError"]["failed"], groups["OSError"]["retrying"]) == ("", "1")
        assert "theirs" not in text(page).lower()
        assert "only some jobs" in text(page)

    def test_the_overview_shows_nothing_of_hidden_jobs(self, admin_page: Client) -> None:
        make_worker("django-worker-1", tasks=["other"])
        for _ in range(3):
            make_job("other", queue_name="their-queue")
            make_failed_job("other")
        shown = text(admin_page.get("/restricted/graphile_worker/overview/"))
        assert "1 Worker alive" in shown
        assert "only some jobs" in shown
        for secret in ("other", "their-queue", "Oldest ready job", "Throughput"):
            assert secret not in shown.split("Worker alive")[1]

    def test_a_hidden_job_looks_like_a_job_that_does_not_exist(self, admin_page: Client) -> None:
        other = make_failed_job("other", key="their-key")
        act(admin_page, "fail", other, confirmed="1", reason="because")
        notes_of_others = LogEntry.objects.filter(object_id=other)
        LogEntry.objects.create(
            user=User.objects.get(), content_type_id=_content_type(), object_id=str(other), action_flag=2,
            change_message="Fail permanently (reason=because)",
        )  # fmt: skip
        assert notes_of_others.exists()
        shown = admin_page.get(f"{self.base}{other}/change/")
        assert shown.status_code == 404
        assert "because" not in text(shown)
        shown_pages = set()
        for word in ("their-key", "eir-ke", "no-such"):
            page = admin_page.get(self.base, {"q": word})
            assert "No jobs match." in text(page)
            shown_pages.add(text(page).replace(word, "…"))
        assert len(shown_pages) == 1
        # Whether there is such a task, queue or label is not said.
        for query in ("task:other", "task:no-such", "queue:no-such", "label:no-such"):
            assert "No jobs match." in text(admin_page.get(self.base, {"q": query})), query

    def test_counts_leave_hidden_jobs_out(self, admin_page: Client) -> None:
        make_job("other")
        page = admin_page.get(self.base).context["cl"]
        assert [tab["count"] for tab in page.tabs()] == ["0", "", "", "", "", ""]

    def test_an_empty_queryset_shows_no_jobs(self, admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(MyJobsAdmin, "get_queryset", lambda self, request: Job.objects.none())
        make_job("mine%a")
        assert admin_page.get(self.base).context["cl"].result_list == []

    def test_the_search_offers_no_tasks(self, admin_page: Client) -> None:
        make_job("mine%a")
        make_job("other:theirs@label")
        page = admin_page.get(self.base)
        assert "theirs" not in body(page)
        assert page.context["known_tasks"] == []

    def test_actions_leave_jobs_that_have_become_hidden(self, admin_page: Client) -> None:
        """A job that is replaced under its key may become another task's."""
        shown, hidden = (make_job("mine%a", run_at=minutes_ago(-9)) for _ in range(2))
        asked = act(admin_page, "reschedule", shown, hidden, url=self.base + "act/")
        other = Job.objects.get(pk=make_job("other")).task_id
        execute("update {schema}._private_jobs set task_id = %s where id = %s", [other, hidden])
        confirm(admin_page, asked, priority="7")
        assert set(Job.objects.filter(priority=7).values_list("pk", flat=True)) == {shown}

    def test_a_queue_does_not_name_the_hidden_job_that_holds_it(self, admin_page: Client) -> None:
        mine = make_job("mine%a", queue_name="eu")
        for running, is_shown in ((make_job("other", queue_name="eu", locked_by="w"), False), (mine, True)):
            # Before the jobs, whose now() is the beginning of the test.
            make_queue("eu", locked_by="w", locked_at=minutes_ago(60))
            execute("update {schema}._private_jobs set locked_at = null, locked_by = null")
            execute("update {schema}._private_jobs set locked_at = now(), locked_by = 'w' where id = %s", [running])
            waiting = make_job("mine%a", queue_name="eu")
            addresses = ["/restricted/graphile_worker/jobqueue/", f"{self.base}{waiting}/change/"]
            for url in (*addresses, f"{addresses[0]}?show=all"):
                shown = text(admin_page.get(url))
                assert (f"#{running}" in shown) == is_shown, url
                assert "other" not in shown

    def test_the_log_of_all_users_is_not_shown(self, admin_page: Client) -> None:
        events = "/restricted/graphile_worker/event/"
        act(admin_page, "fail", make_job("other"), confirmed="1", reason="their reason")
        assert admin_page.get(events, {"show": "audit"}).status_code == 403
        assert "Audit log" not in text(admin_page.get(events))
