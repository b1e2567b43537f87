"""Actions on many jobs: in steps, each of which is done whole or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.db import connection, connections
from django.test import Client

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.jobs import bulk_action, forms
from django_graphile_worker.models import Job
from django_graphile_worker.sql.job_actions import bulk_steps
from tests.support.admin_pages import StatementRecorder, act, act_on_all, action_url, log_entries, messages, text
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute
from tests.support.rows import query

pytestmark = pytest.mark.django_db(transaction=True)

SCHEMA = settings.GRAPHILE_WORKER["SCHEMA"]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_steps, "STEP", 7)


@pytest.fixture
def one_step_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each step take as long as a request may."""
    clock = iter(range(10**6))
    monkeypatch.setattr(bulk_action, "MAX_REQUEST_TIME", 1.5)
    monkeypatch.setattr(bulk_action, "monotonic", lambda: next(clock))


def in_own_connection(client: Client, url: str, fields: dict[str, Any]) -> Any:
    """Send a form in a thread: another tab of the same user."""
    tab = Client()
    tab.cookies = client.cookies
    try:
        return tab.post(url, fields, follow=True)
    finally:
        connections.close_all()


def finish_action(client: Client, page: Any) -> tuple[Any, int]:
    requests = 1
    while url := action_url(page):
        page = client.post(url, follow=True)
        requests += 1
    return page, requests


STATES: dict[str, dict[str, Any]] = {
    "ready": {"priority": 2},
    "scheduled": {"run_at": minutes_ago(-60 * 24)},
    "retrying": {"run_at": minutes_ago(-60 * 24), "attempts": 1, "last_error": "KeyError: x"},
    "failed": {"attempts": 25, "last_error": "KeyError: x"},
}


def make_many() -> dict[str, set[int]]:
    """Create twelve jobs of each state in each of three tasks: in a queue, with a flag, and without either."""
    kinds: list[dict[str, Any]] = [{}, {"queue_name": "eu"}, {"flags": {"slow": True}}]
    return {
        state: {make_job(f"task{number % 3}", **columns, **kinds[number // 3 % 3]) for number in range(36)}
        for state, columns in STATES.items()
    }


class TestAllThatMatch:
    @pytest.mark.parametrize("state", ["ready", "scheduled", "retrying", "failed", "all"])
    def test_are_exactly_the_matching_jobs(self, admin_page: Client, state: str) -> None:
        jobs = make_many()
        there = set().union(*jobs.values())
        for terms in ("task:task0 queue:eu", "queue:eu", "flag:slow", "task:task1", ""):
            wanted = {job for name, ids in jobs.items() if state in (name, "all") for job in ids}
            expected = set(Job.objects.filter(pk__in=wanted, **_filters(terms)).values_list("pk", flat=True))
            assert len(expected) > 3
            response = act_on_all(admin_page, "delete", terms, state=state, confirmed="1")
            assert messages(response) == [f"{len(expected)} jobs were deleted."]
            there -= expected
            assert set(Job.objects.values_list("pk", flat=True)) == there

    @pytest.mark.parametrize("state", ["ready", "all"])
    def test_are_each_changed_once_although_they_still_match(self, admin_page: Client, state: str) -> None:
        jobs = make_many()
        given = {"priority": "5", "confirmed": "1"}
        response = act_on_all(admin_page, "reschedule", state=state, **given)
        number = 36 if state == "ready" else 144
        assert messages(response) == [f"{number} jobs were rescheduled."]
        assert Job.objects.filter(priority=5).count() == number
        assert set(Job.objects.values_list("pk", flat=True)) == set().union(*jobs.values())

    def test_that_run_now_are_changed_once(self, admin_page: Client) -> None:
        make_many()
        (said,) = messages(act_on_all(admin_page, "run_now", state="all", confirmed="1"))
        assert said.startswith("72 jobs will run now. 24 of them are in queues")

    def test_lock_no_more_rows_than_a_step_has(self, admin_page: Client) -> None:
        make_many()
        recorder = StatementRecorder()
        with connection.execute_wrapper(recorder):
            act_on_all(admin_page, "retry", "task:task1", state="failed", confirmed="1")
        steps = [statement for statement in recorder.statements if "gw:retry-all" in statement]
        assert len(steps) == 2

    def test_are_one_statement_when_they_are_few(self, admin_page: Client) -> None:
        for number in range(6):
            make_failed_job(f"task{number}")
        recorder = StatementRecorder()
        with connection.execute_wrapper(recorder):
            act_on_all(admin_page, "retry", state="failed", confirmed="1")
        assert sum("gw:retry-all" in statement for statement in recorder.statements) == 1

    def test_leave_out_jobs_that_were_added_later(self, admin_page: Client, one_step_a_request: None) -> None:
        for _ in range(20):
            make_job("send")
        page = act_on_all(admin_page, "delete", "task:send", state="ready", confirmed="1")
        newcomer = make_job("send")
        finish_action(admin_page, page)
        assert list(Job.objects.values_list("pk", flat=True)) == [newcomer]


def _filters(terms: str) -> dict[str, Any]:
    meanings = {
        "task:task0": {"task__identifier": "task0"},
        "task:task1": {"task__identifier": "task1"},
        "queue:eu": {"job_queue__queue_name": "eu"},
        "flag:slow": {"flags__has_key": "slow"},
    }
    filters: dict[str, Any] = {}
    for term in terms.split():
        filters |= meanings[term]
    return filters


class TestALongAction:
    def test_shows_its_progress_and_continues(self, admin_page: Client, one_step_a_request: None) -> None:
        for _ in range(30):
            make_job("send")
        running = make_job("send", locked_by="worker")
        page = act_on_all(admin_page, "fail", "task:send", reason="no <more>", confirmed="1")
        assert page.status_code == 200
        assert "More jobs match. The changes so far stay" in text(page)
        page, requests = finish_action(admin_page, page)
        assert requests > 3
        assert messages(page) == [
            "30 jobs were failed.",
        ]
        (error,) = set(Job.objects.exclude(pk=running).values_list("last_error", flat=True))
        assert error == "no <more>\n\nNot tried again after attempt 0 of 25."

    def test_logs_exactly_what_it_did(self, admin_page: Client, one_step_a_request: None) -> None:
        for _ in range(30):
            make_failed_job("send")
        page = act_on_all(admin_page, "delete", "task:send", state="failed", confirmed="1")
        assert [name for name, _ in log_entries()] == [f"{30 - Job.objects.count()} jobs"]
        finish_action(admin_page, page)
        assert sum(1 if name.startswith("#") else int(name.split()[0]) for name, _ in log_entries()) == 30

    def test_that_is_stopped_has_done_what_it_reported(self, admin_page: Client, one_step_a_request: None) -> None:
        for _ in range(30):
            make_job("send", priority=3)
        page = act_on_all(admin_page, "reschedule", "task:send", state="ready", priority="7", confirmed="1")
        done = Job.objects.filter(priority=7).count()
        assert 0 < done < 30
        assert f"{done} jobs were rescheduled." in text(page)
        page = admin_page.post(action_url(page), {"stop": "1"}, follow=True)
        assert messages(page) == [f"Stopped after {done} of 30 jobs.", f"{done} jobs were rescheduled."]
        assert Job.objects.filter(priority=7).count() == done
        assert not execute("select 1 from {schema}._private_action_steps")

    def test_that_is_stopped_during_a_step_reports_what_the_step_did(
        self, admin_page: Client, one_step_a_request: None, monkeypatch: pytest.MonkeyPatch, wait_until: Any
    ) -> None:
        for _ in range(30):
            make_job("send", priority=3)
        page = act_on_all(admin_page, "reschedule", "task:send", state="ready", priority="7", confirmed="1")
        monkeypatch.setattr(bulk_action, "MAX_REQUEST_TIME", 10**6)
        url = action_url(page)
        is_changed, may_commit = Event(), Event()
        run_step = bulk_steps.run_step

        def held_step(*arguments: Any, **options: Any) -> Any:
            result = run_step(*arguments, **options)
            is_changed.set()
            assert may_commit.wait(20)
            return result

        monkeypatch.setattr(bulk_steps, "run_step", held_step)
        with ThreadPoolExecutor(2) as requests:
            continued = requests.submit(in_own_connection, admin_page, url, {})
            assert is_changed.wait(20)
            stopped = requests.submit(in_own_connection, admin_page, url, {"stop": "1"})
            # Of this database only: other test processes wait for locks on the same server.
            waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            wait_until(lambda: query(waiting))
            may_commit.set()
            answers = [continued.result(20), stopped.result(20)]
        done = Job.objects.filter(priority=7).count()
        assert done == 14, "no further step has begun"
        for answer in answers:
            assert messages(answer) == ["Stopped after 14 of 30 jobs.", "14 jobs were rescheduled."]
        assert sum(int(name.split()[0]) for name, _ in log_entries()) == 14
        # The form of another tab continues nothing.
        assert messages(admin_page.post(url, follow=True))[0] == "Stopped after 14 of 30 jobs."
        assert Job.objects.filter(priority=7).count() == 14

    def test_of_two_operators_is_counted_and_stopped_for_each(
        self, admin_page: Client, client_with: Any, one_step_a_request: None
    ) -> None:
        for _ in range(30):
            make_job("send", priority=3)
        other = client_with("reschedule_job")
        mine = act_on_all(admin_page, "reschedule", "task:send", state="ready", priority="7", confirmed="1")
        theirs = act_on_all(other, "reschedule", "task:send", state="ready", priority="8", confirmed="1")
        assert other.post(action_url(mine), {"stop": "1"}).status_code == 404
        stopped = admin_page.post(action_url(mine), {"stop": "1"}, follow=True)
        assert messages(stopped)[1] == "7 jobs were rescheduled."
        done, _ = finish_action(other, theirs)
        assert messages(done) == ["30 jobs were rescheduled."]
        assert Job.objects.filter(priority=8).count() == 30

    def test_gives_all_jobs_the_same_time_of_the_list(
        self, admin_page: Client, one_step_a_request: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(30):
            make_job("send")
        clock = (minutes_ago(-number) for number in range(100))
        monkeypatch.setattr(f"{forms.__name__}.localtime", lambda: next(clock))
        page = act_on_all(admin_page, "reschedule", "task:send", state="ready", preset="1h", confirmed="1")
        page, requests = finish_action(admin_page, page)
        assert requests > 2
        assert len(set(Job.objects.values_list("run_at", flat=True))) == 1

    @pytest.mark.parametrize("lost", [1, 2, 3])
    @pytest.mark.parametrize(
        ("action", "given", "done"), [("delete", {}, {"pk__lt": 0}), ("reschedule", {"priority": "5"}, {"priority": 5})]
    )
    def test_whose_answers_are_lost_is_continued_by_the_same_page(
        self,
        admin_page: Client,
        one_step_a_request: None,
        action: str,
        given: dict[str, str],
        done: dict[str, int],
        lost: int,
    ) -> None:
        """The tab was closed, for example."""
        for number in range(45):
            make_job(f"task{number % 3}", run_at=minutes_ago(5))
        page = act_on_all(admin_page, action, state="ready", confirmed="1", **given)
        for _ in range(lost):
            assert admin_page.post(action_url(page), follow=True).status_code == 200
        page, _ = finish_action(admin_page, admin_page.get(action_url(page)))
        assert messages(page)[0].startswith("45 jobs were "), "what the lost answers said is counted"
        assert Job.objects.filter(**done).count() == Job.objects.count()

    def test_that_two_tabs_continue_at_once_does_each_step_once(
        self, admin_page: Client, one_step_a_request: None, monkeypatch: pytest.MonkeyPatch, wait_until: Any
    ) -> None:
        for _ in range(30):
            make_job("send", priority=3)
        page = act_on_all(admin_page, "reschedule", "task:send", state="ready", priority="7", confirmed="1")
        monkeypatch.setattr(bulk_action, "MAX_REQUEST_TIME", 10**6)
        url = action_url(page)
        with ThreadPoolExecutor(2) as requests:
            answers = [requests.submit(in_own_connection, admin_page, url, {}) for _ in range(2)]
            said = [messages(answer.result(20)) for answer in answers]
        assert said == [["30 jobs were rescheduled."]] * 2
        assert Job.objects.filter(priority=7).count() == 30
        # The tab that has done only the last step names its two jobs.
        assert sum(1 if name.startswith("#") else int(name.split()[0]) for name, _ in log_entries()) == 30

    def test_continued_after_hours_still_has_its_steps(self, admin_page: Client, one_step_a_request: None) -> None:
        for _ in range(30):
            make_job("send")
        page = act_on_all(admin_page, "delete", "task:send", state="ready", confirmed="1")
        execute("update {schema}._private_action_steps set made_at = made_at - interval '3 hours'")
        other = make_failed_job("another")
        act(admin_page, "retry", other)
        finish_action(admin_page, page)
        assert list(Job.objects.values_list("pk", flat=True)) == [other]

    def test_of_another_user_is_not_found(self, admin_page: Client, client_with: Any, one_step_a_request: None) -> None:
        for _ in range(30):
            make_failed_job("send")
        page = act_on_all(admin_page, "delete", "task:send", state="failed", confirmed="1")
        before = Job.objects.count()
        unknown = action_url(page).replace(action_url(page).split("/")[-2], str(uuid4()))
        assert admin_page.post(unknown).status_code == 404
        assert client_with("complete_job").post(action_url(page)).status_code == 404
        assert Job.objects.count() == before

    def test_is_refused_when_the_permission_is_gone(self, client_with: Any, one_step_a_request: None) -> None:
        for _ in range(30):
            make_failed_job("send")
        client = client_with("complete_job")
        page = act_on_all(client, "delete", "task:send", state="failed", confirmed="1")
        before = Job.objects.count()
        User.objects.get(pk=client.session["_auth_user_id"]).user_permissions.remove(
            Permission.objects.get(codename="complete_job")
        )
        assert client.post(action_url(page)).status_code == 403
        assert Job.objects.count() == before

    def test_that_does_not_end_in_time_reports_what_was_done(
        self, admin_page: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        """An open transaction has changed one of the jobs: the step that reaches it has to wait."""
        before = settings.GRAPHILE_WORKER
        # Less than a step waits for a lock.
        settings.GRAPHILE_WORKER = before | {"STATEMENT_TIMEOUT": databases.LONGEST_LOCK_WAIT * 0.75}
        ids = [make_failed_job("send", updated_at=minutes_ago(number + 1)) for number in range(30)]
        with open_transaction_on(ids[20]):
            page = act_on_all(admin_page, "delete", "task:send", state="failed", confirmed="1")
        assert page.status_code == 503
        done = 30 - Job.objects.count()
        assert done == 14
        assert "14 jobs were deleted." in text(page)
        assert "was rolled back" in text(page)
        assert [name for name, _ in log_entries()] == ["14 jobs"]
        settings.GRAPHILE_WORKER = before
        page = admin_page.post(action_url(page), follow=True)
        assert messages(page) == ["30 jobs were deleted."]
        assert not Job.objects.exists()
        assert [name for name, _ in log_entries()] == ["14 jobs", "16 jobs"]

    def test_waits_for_no_locked_job_as_long_as_a_statement_may_take(
        self, admin_page: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Meanwhile it would keep the other jobs of the step from workers, and from what adds jobs with their keys."""
        monkeypatch.setattr(databases, "LONGEST_LOCK_WAIT", 0.1)
        ids = [make_job("send", run_at=minutes_ago(5)) for _ in range(20)]
        with open_transaction_on(ids[10]):
            page = act_on_all(admin_page, "fail", "task:send", state="ready", reason="no", confirmed="1")
        assert page.status_code == 503
        assert "7 jobs were failed." in text(page)
        assert messages(admin_page.post(action_url(page), follow=True)) == ["20 jobs were failed."]


class TestRestrictedByQueryset:
    def test_holds_for_every_step(self, admin_page: Client, settings: Any, one_step_a_request: None) -> None:
        settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
        act_url = "/restricted/graphile_worker/job/act/"
        others = {make_failed_job("other") for _ in range(20)}
        for _ in range(20):
            make_failed_job("mine%a")
        asked = admin_page.post(act_url, {"action": "delete", "all": "1", "state": "failed"}, follow=True)
        assert asked.context["title"] == "Delete 20 jobs?"
        finish_action(admin_page, asked)
        assert set(Job.objects.values_list("pk", flat=True)) == others


class open_transaction_on:  # noqa: N801 - reads as a sentence
    """An open transaction that has locked a job."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id

    def __enter__(self) -> None:
        parameters = connection.get_connection_params()
        parameters = {name: value for name, value in parameters.items() if name in ("dbname", "user", "host", "port")}
        self.connection = psycopg.connect(**parameters)
        self.connection.execute(f'select from "{SCHEMA}"._private_jobs where id = {self.job_id} for update'.encode())

    def __exit__(self, *exception: object) -> None:
        self.connection.rollback()
        self.connection.close()
