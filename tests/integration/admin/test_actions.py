"""What people do with jobs: through the schema's functions, asked for, told, and noted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_graphile_worker import models
from django_graphile_worker.models import Job
from tests.integration.admin import pages
from tests.integration.admin.pages import messages, text
from tests.integration.admin.restricted_site import MyJobsAdmin
from tests.integration.admin.test_pages import make_worker
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago


def act(client: Client, action: str, *ids: int, **fields: Any) -> Any:
    return client.post(pages.ACT, {"action": action, "id": ids, **fields}, follow=True)


def act_on_all(client: Client, action: str, query: str = "", **fields: Any) -> Any:
    return client.post(pages.ACT, {"action": action, "all": "1", "q": query, **fields}, follow=True)


def notes() -> list[tuple[str, str]]:
    return [(entry.object_repr, entry.get_change_message()) for entry in LogEntry.objects.order_by("pk")]


class TestEachAction:
    def test_run_now_makes_a_failed_job_start_afresh(self, admin_page: Client) -> None:
        job_id = make_failed_job("send", run_at=minutes_ago(-60))
        assert messages(act(admin_page, "run", job_id)) == ["Run now: 1 job."]
        job = Job.objects.get(pk=job_id)
        assert (job.attempts, job.is_available) == (0, True)
        assert job.run_at <= timezone.now()
        assert notes() == [(f"#{job_id}", "Run now.")]

    def test_reschedule_asks_and_changes_what_was_given(self, admin_page: Client) -> None:
        job_id = make_failed_job("send", priority=3)
        asked = act(admin_page, "reschedule", job_id)
        assert "What is left empty stays as it is." in text(asked)
        assert Job.objects.get(pk=job_id).attempts == 25
        then = (timezone.now() + timedelta(days=2)).replace(microsecond=0)
        given = {"run_at": f"{then:%Y-%m-%dT%H:%M:%S}", "attempts": "1", "max_attempts": "4"}
        assert messages(act(admin_page, "reschedule", job_id, confirmed="1", **given)) == ["Rescheduled: 1 job."]
        job = Job.objects.get(pk=job_id)
        assert (job.run_at, job.attempts, job.max_attempts, job.priority) == (then, 1, 4, 3)

    @pytest.mark.parametrize(
        ("given", "complaint"),
        [
            ({}, "Expected at least one change"),
            ({"priority": "40000"}, "less than or equal to 32767"),
            ({"attempts": "-1"}, "greater than or equal to 0"),
            ({"max_attempts": "0"}, "greater than or equal to 1"),
            ({"run_at": "tomorrow"}, "Enter a valid date/time."),
            ({"run_at": "9999-12-31T00:00"}, "expected a time in the years 2 to 9998"),
        ],
    )
    def test_reschedule_refuses_at_the_field(self, admin_page: Client, given: dict[str, str], complaint: str) -> None:
        job_id = make_job("send")
        before = Job.objects.values().get(pk=job_id)
        assert complaint in text(act(admin_page, "reschedule", job_id, confirmed="1", **given))
        assert Job.objects.values().get(pk=job_id) == before

    @pytest.mark.parametrize(("action", "told"), [("complete", "Completed"), ("remove", "Removed")])
    def test_complete_and_remove_ask_first_and_delete(self, admin_page: Client, action: str, told: str) -> None:
        job_id = make_job("send", key="a")
        assert "Jobs: 1." in text(act(admin_page, action, job_id))
        assert Job.objects.filter(pk=job_id).exists()
        assert f"{told}: 1 job." in messages(act(admin_page, action, job_id, confirmed="1"))
        assert not Job.objects.filter(pk=job_id).exists()
        assert LogEntry.objects.get().is_deletion()

    def test_fail_keeps_the_reason(self, admin_page: Client) -> None:
        job_id = make_job("send")
        act(admin_page, "fail", job_id, confirmed="1", reason="Customer left; password=hunter2")
        job = Job.objects.get(pk=job_id)
        assert (job.attempts, job.last_error) == (25, "Customer left; password=hunter2")
        assert notes() == [(f"#{job_id}", "Fail permanently (reason=Customer left; password=••••••).")]

    def test_add_again_with_an_edited_payload(self, admin_page: Client) -> None:
        job_id = make_failed_job(
            "send_receipt", payload={"order": 1}, queue_name="eu", priority=4, max_attempts=3, attempts=3
        )
        form = admin_page.get(pages.ADD, {"from": job_id}).context["form"]
        assert form.initial["payload"] == '{\n  "order": 1\n}'
        given = {
            "task": "send_receipt",
            "payload": '{"order": 2}',
            "queue_name": "eu",
            "priority": "4",
            "max_attempts": "3",
        }
        response = admin_page.post(f"{pages.ADD}?from={job_id}", given, follow=True)
        added = Job.objects.exclude(pk=job_id).get()
        assert messages(response) == [f"Added send_receipt #{added.pk}."]
        assert (added.payload, added.job_queue.queue_name, added.priority) == ({"order": 2}, "eu", 4)
        assert Job.objects.filter(pk=job_id).exists(), "the old one stays"

    def test_the_form_names_the_time_zone_of_its_times(self, admin_page: Client) -> None:
        for zone in ("Europe/Paris", "Asia/Tokyo"):
            with timezone.override(zone):
                assert f"In the time zone {zone}, where it is " in text(admin_page.get(pages.ADD))
                job_id = make_job("send")
                assert f"In the time zone {zone}, where it is " in text(act(admin_page, "reschedule", job_id))


class TestManyAtOnce:
    def test_running_jobs_are_left_alone_and_counted(self, admin_page: Client) -> None:
        free, running = make_job("send"), make_job("send", locked_by="worker")
        told = messages(act(admin_page, "complete", free, running, 777_777, confirmed="1"))
        assert told == [
            "Completed: 1 job.",
            "1 job was left alone, because a worker is running it.",
            "1 job is no longer there.",
        ]
        assert list(Job.objects.values_list("pk", flat=True)) == [running]

    def test_all_that_match_asks_with_the_number_and_does_it_in_one_statement(self, admin_page: Client) -> None:
        for _ in range(130):
            make_failed_job("send", error="KeyError: 'x'")
        other = make_failed_job("charge", error="KeyError: 'x'")
        asked = act_on_all(admin_page, "run", "task:send", state="failed")
        assert "All jobs that match “Permanently failed task:send”: 130." in text(asked)
        recorder = Recorder()
        with connection.execute_wrapper(recorder):
            act_on_all(admin_page, "run", "task:send", state="failed", confirmed="1")
        assert sum("gw:reschedule-all" in statement for statement in recorder.statements) == 1
        assert Job.objects.filter(is_available=True).count() == 130
        assert not Job.objects.get(pk=other).is_available
        ((name, message),) = notes()
        assert name == "130 jobs"
        assert message.startswith("Run now Permanently failed task:send. ")

    def test_all_that_match_never_means_more_than_was_understood(self, admin_page: Client) -> None:
        job_id = make_job("send")
        response = act_on_all(admin_page, "remove", "tusk:send", confirmed="1")
        assert "tusk:send: expected one of" in messages(response)[0]
        assert Job.objects.filter(pk=job_id).exists()

    def test_a_mistyped_search_never_means_the_whole_tab(self, admin_page: Client) -> None:
        """What the page sends back must hold the mistake, or nothing would be left to refuse."""
        ids = {make_failed_job("send"), make_failed_job("charge")}
        page = admin_page.get(pages.JOBS, {"q": "taks:send", "state": "failed"})
        assert 'name="all"' not in pages.body(page)
        sent = pages.fields(page)
        assert sent["q"] == "taks:send"
        response = act_on_all(admin_page, "run", sent["q"], state=sent["state"], confirmed="1")
        assert response.status_code == 200
        (told,) = messages(response)
        assert "Nothing was done" in told
        assert "taks:send: expected one of" in told
        assert response.context["query"] == "taks:send", "to be mended where it was written"
        assert set(Job.objects.filter(is_available=False).values_list("pk", flat=True)) == ids

    def test_a_state_that_there_is_not_never_means_all_states(self, admin_page: Client) -> None:
        make_job("send")
        (told,) = messages(act_on_all(admin_page, "remove", "task:send", state="faild", confirmed="1"))
        assert "state: expected one of ready" in told
        assert Job.objects.count() == 1

    def test_all_in_each_state(self, admin_page: Client) -> None:
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
        assert "left alone" in messages(act_on_all(admin_page, "complete", state="running", confirmed="1"))[0]

    def test_an_error_group_is_retried_as_a_whole(self, admin_page: Client) -> None:
        make_failed_job("send", error="KeyError: 'x'")
        make_job("send", attempts=1, last_error="KeyError: 'y'", run_at=minutes_ago(-60))
        other = make_failed_job("send", error="ValueError: z")
        (group,) = [each for each in admin_page.get(pages.ERRORS).context["groups"] if each["name"] == "KeyError"]
        fields = {"state": "failing", "confirmed": "1", "back": pages.ERRORS}
        response = act_on_all(admin_page, "run", group["query"], **fields)
        assert messages(response) == ["Run now: 2 jobs."]
        assert response.request["PATH_INFO"] == pages.ERRORS
        assert set(Job.objects.filter(attempts__gt=0).values_list("pk", flat=True)) == {other}

    def test_nothing_chosen_is_told(self, admin_page: Client) -> None:
        make_job("send")
        assert messages(act(admin_page, "run")) == ["Choose jobs, or all that match."]
        assert messages(act(admin_page, "", 1)) == ["Choose an action."]

    @pytest.mark.parametrize(
        "back", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"]
    )
    def test_leads_back_to_this_site_only(self, admin_page: Client, back: str) -> None:
        response = admin_page.post(pages.ACT, {"action": "run", "id": make_job("send"), "back": back})
        assert response["Location"].startswith(pages.JOBS)


class Recorder:
    """The statements that were executed."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements.append(sql)
        return execute(sql, params, many, context)


class TestAdding:
    def test_adds_with_every_option(self, admin_page: Client) -> None:
        given = {
            "task": "send_receipt",
            "payload": '{"order": 9007199254740993}',
            "queue_name": "eu",
            "run_at": "2040-01-02T03:04:05",
            "priority": "-3",
            "max_attempts": "7",
            "job_key": "k",
            "job_key_mode": "preserve_run_at",
            "flags": "slow, remote",
        }
        response = admin_page.post(pages.ADD, given, follow=True)
        job = Job.objects.get()
        assert messages(response) == [f"Added send_receipt #{job.pk}."]
        assert job.payload == {"order": 9007199254740993}
        assert (job.priority, job.max_attempts, job.key, job.flags) == (-3, 7, "k", {"slow": True, "remote": True})
        assert job.run_at.isoformat() == "2040-01-02T03:04:05+00:00"
        assert notes() == [(f"send_receipt #{job.pk}", "Added in the admin.")]

    def test_a_task_lends_its_defaults(self, admin_page: Client) -> None:
        admin_page.post(pages.ADD, {"task": "move_stock", "payload": ""})
        job = Job.objects.get()
        assert job.job_queue is not None
        assert job.job_queue.queue_name == "warehouse"
        assert job.payload == {}

    @pytest.mark.parametrize(
        ("payload", "complaint"),
        [
            ('{"a": 1,}', "Expected JSON, got"),
            ("{'a': 1}", "line 1, column 2"),
            ('{"a": 1', "got the end"),
            ('{"a": NaN}', "payload: expected"),
            ('{"a": "\\u0000"}', "a NUL character"),
            ("[" * 2000, "Expected JSON"),
            ("[" + "9" * 6000 + "]", "Expected JSON that can be read back"),
        ],
    )
    def test_bad_json_is_refused_at_its_field(self, admin_page: Client, payload: str, complaint: str) -> None:
        response = admin_page.post(pages.ADD, {"task": "send_receipt", "payload": payload})
        assert response.status_code == 200
        assert complaint in " ".join(response.context["form"].errors["payload"])
        assert not Job.objects.exists()

    @pytest.mark.parametrize("task", ["", "os.system", "builtins.eval", "send_receipt; drop"])
    def test_only_known_tasks(self, admin_page: Client, task: str) -> None:
        response = admin_page.post(pages.ADD, {"task": task, "payload": "{}"})
        assert "task" in response.context["form"].errors

    def test_tasks_of_other_workers_can_be_chosen(self, admin_page: Client, worker_schema: str) -> None:
        make_worker(worker_schema, "django-worker-1", tasks=["elsewhere"])
        admin_page.post(pages.ADD, {"task": "elsewhere", "payload": "{}"})
        assert Job.objects.get().task.identifier == "elsewhere"


class TestRecurringNow:
    def test_runs_an_item_now(self, admin_page: Client) -> None:
        response = admin_page.post(pages.RECURRING + "run/", {"item": "count_orders"}, follow=True)
        job = Job.objects.get()
        assert messages(response) == [f"Added count_orders #{job.pk}."]
        assert job.payload["_cron"]["backfilled"] is False
        assert notes() == [("count_orders", f"Run now, as job #{job.pk}.")]

    def test_unknown_items_are_not_found(self, admin_page: Client) -> None:
        assert admin_page.post(pages.RECURRING + "run/", {"item": "nope"}).status_code == 404


class TestUnlocking:
    @pytest.mark.parametrize("base", [pages.WORKERS, pages.QUEUES])
    def test_frees_what_a_dead_worker_held(self, admin_page: Client, worker_schema: str, base: str) -> None:
        make_worker(worker_schema, "django-worker-1", silent=600)
        job_id = make_job("send", queue_name="eu", locked_by="django-worker-1")
        make_queue("eu", locked_by="django-worker-1")
        asked = admin_page.post(base + "unlock/", {"worker": "django-worker-1"})
        assert "has been silent for 10 min" in text(asked)
        assert f"Job send #{job_id}" in text(asked)
        assert Job.objects.get().locked_by == "django-worker-1"
        response = admin_page.post(base + "unlock/", {"worker": "django-worker-1", "confirmed": "1"}, follow=True)
        assert messages(response) == ["Unlocked what django-worker-1 held: 2."]
        assert Job.objects.get().locked_by is None
        assert models.JobQueue.objects.get().locked_by is None
        ((name, message),) = notes()
        assert name == "django-worker-1"
        assert f"job {job_id}" in message

    def test_a_live_one_is_refused_without_insisting(self, admin_page: Client, worker_schema: str) -> None:
        make_worker(worker_schema, "django-worker-1", silent=2)
        make_job("send", locked_by="django-worker-1")
        fields = {"worker": "django-worker-1", "confirmed": "1"}
        refused = admin_page.post(pages.WORKERS + "unlock/", fields)
        assert "is alive" in text(refused)
        assert Job.objects.get().locked_by == "django-worker-1"
        admin_page.post(pages.WORKERS + "unlock/", {**fields, "anyway": "1"})
        assert Job.objects.get().locked_by is None


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
            assert admin_page.get(self.base, {"state": state, "q": "task:other"}).context["lines"] == []
        assert admin_page.get(f"{self.base}{mine}/change/").status_code == 200
        assert admin_page.get(f"{self.base}{other}/change/").status_code == 404
        assert admin_page.get(f"{self.base}add/", {"from": other}).status_code == 404
        assert admin_page.get(f"{self.base}{mine}/payload/").status_code == 200
        assert admin_page.get(f"{self.base}{other}/payload/").status_code == 404

    def test_holds_for_actions_on_ids_and_on_all(self, admin_page: Client) -> None:
        mine, other = make_job("mine%a"), make_job("other")
        fields = {"action": "complete", "confirmed": "1"}
        admin_page.post(self.base + "act/", {**fields, "id": [other]})
        assert Job.objects.filter(pk=other).exists()
        for state in ("all", "ready"):
            admin_page.post(self.base + "act/", {**fields, "all": "1", "state": state})
        assert list(Job.objects.values_list("pk", flat=True)) == [other]
        assert not Job.objects.filter(pk=mine).exists()

    def test_errors_are_those_of_jobs_one_may_see(self, admin_page: Client) -> None:
        make_failed_job("mine%a", error="KeyError: mine", updated_at=minutes_ago(9))
        latest = make_failed_job("mine%a", error="KeyError: latest of mine", updated_at=minutes_ago(2))
        make_job("mine%a", attempts=1, last_error="OSError: again", run_at=minutes_ago(-9))
        make_failed_job("other", error="KeyError: theirs, token=abc")
        make_failed_job("other", error="TheirsAlone: no")
        page = admin_page.get("/restricted/graphile_worker/errorgroup/")
        groups = {group["name"]: group for group in page.context["groups"]}
        assert set(groups) == {"KeyError", "OSError"}
        assert (groups["KeyError"]["number"], groups["KeyError"]["latest_id"]) == ("2", latest)
        assert (groups["OSError"]["failed"], groups["OSError"]["retrying"]) == ("0", "1")
        assert "theirs" not in text(page).lower()
        assert "some jobs only" in text(page)

    def test_the_overview_tells_nothing_of_the_others(self, admin_page: Client, worker_schema: str) -> None:
        make_worker(worker_schema, "django-worker-1", tasks=["other"])
        for _ in range(3):
            make_job("other", queue_name="their-queue")
            make_failed_job("other")
        shown = text(admin_page.get("/restricted/graphile_worker/overview/"))
        assert "1 Workers alive" in shown
        assert "some jobs only" in shown
        for secret in ("other", "their-queue", "Permanently failed", "Throughput"):
            assert secret not in shown.split("Workers alive")[1]

    def test_a_hidden_job_looks_like_one_that_never_was(self, admin_page: Client) -> None:
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
        for word in ("their-key", "no-such-key"):
            assert admin_page.get(self.base, {"q": word}).context["query"] == f"error:{word}"

    def test_counts_tell_nothing_of_the_others(self, admin_page: Client) -> None:
        make_job("other")
        assert {tab["count"] for tab in admin_page.get(self.base).context["tabs"]} == {""}

    def test_nothing_at_all_is_nothing(self, admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(MyJobsAdmin, "get_queryset", lambda self, request: Job.objects.none())
        make_job("mine%a")
        assert admin_page.get(self.base).context["lines"] == []


def test_an_audit_entry_belongs_to_whoever_did_it(client_with: Any) -> None:
    client = client_with("reschedule_job")
    act(client, "run", make_job("send"))
    assert LogEntry.objects.get().user == User.objects.get()
