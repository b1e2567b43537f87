"""The search of the list of jobs: what its terms mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from django_graphile_worker.admin.jobs import change_list, search
from django_graphile_worker.admin.search_terms import SearchTerm, parse_terms
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, text
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.limits import make_key, park_job


def found(client: Client, query: str, **parameters: str) -> set[int]:
    page = client.get(pages.JOBS, {"q": query, **parameters})
    assert page.context["cl"].search.errors == (), query
    return {job.pk for job in page.context["cl"].result_list}


def errors(client: Client, query: str) -> str:
    page = client.get(pages.JOBS, {"q": query})
    assert not page.context["cl"].result_list, "a search without its condition would have more jobs"
    return " ".join(page.context["cl"].search.errors)


@pytest.fixture
def jobs(db: None) -> dict[str, int]:
    return {
        "ready": make_job("mail.send", {"user": {"id": 5}, "name": "Zoë"}, priority=3),
        "queued": make_job("mail.pack", queue_name="eu-west", key="order-7", run_at=minutes_ago(-60)),
        "slow": make_job("charge", flags={"slow": True}, run_at=minutes_ago(-60), attempts=2, last_error="KeyError: x"),
        "running": make_job("charge", locked_by="django-worker-0123456789abcdef01/7", attempts=1),
        "failed": make_failed_job("charge", error="shop.errors.CardError: timed out", queue_name="eu-east"),
        "limited": park_job(make_key("account", "42"), "charge"),
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("task:mail.send", {"ready"}),
        ("task:mail", {"ready", "queued"}),
        ("task:mail.send task:charge", {"ready", "slow", "running", "failed", "limited"}),
        ("-task:charge", {"ready", "queued"}),
        ("queue:eu", {"queued", "failed"}),
        ("queue:eu-west", {"queued"}),
        ("-queue:eu", {"ready", "slow", "running", "limited"}),
        ("key:order-7", {"queued"}),
        ("order", {"queued"}),
        ("flag:slow", {"slow"}),
        ("slow", {"slow"}),
        ("-flag:slow task:charge", {"running", "failed", "limited"}),
        ("state:ready,running", {"ready", "running"}),
        ("state:waiting", {"queued", "slow"}),
        ("state:limited", {"limited"}),
        ("-state:failed task:charge", {"slow", "running", "limited"}),
        ("attempts:>1", {"slow", "failed"}),
        ("attempts:1..2", {"slow", "running"}),
        ("priority:3", {"ready"}),
        ("priority:<0", set()),
        ("exception:CardError", {"failed"}),
        ("exception:KeyError", {"slow"}),
        ("-exception:KeyError task:charge", {"running", "failed", "limited"}),
        ('error:"timed out"', {"failed"}),
        ("payload:zoë", {"ready"}),
        ("payload.user.id:5", {"ready"}),
        ("-payload.user.id:5 task:mail", {"queued"}),
        ("worker:django-worker-0123456789abcdef01", {"running"}),
        ("limit:42", {"limited"}),
        ("due:2h", {"queued", "slow"}),
        ("task:charge attempts:>1 -state:failed", {"slow"}),
    ],
)
def test_terms__find_their_jobs(admin_page: Client, jobs: dict[str, int], query: str, names: set[str]) -> None:
    assert found(admin_page, query) == {jobs[name] for name in names}


def test_ids__are_found_on_every_tab_of_all(admin_page: Client, jobs: dict[str, int]) -> None:
    one, other = jobs["ready"], jobs["failed"]
    for query in (f"{one}", f"#{one}", f"id:{one}"):
        assert found(admin_page, query) == {one}
    assert found(admin_page, f"id:{one},{other}") == {one, other}
    assert found(admin_page, f"id:>{max(jobs.values())}") == set()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("taks:send", "taks:send: The conditions are id:, key:, task:"),
        ("task:chagre", "task:chagre: There is no such task. Did you mean charge?"),
        ("queue:nowhere", "There is no such queue."),
        ("label:none", "No task has this label."),
        ("priority:high", "Write a number, a comparison like >3, or a range like 0..10."),
        ("priority:99999", "The number is between -32768 and 32767."),
        ("state:lost", "The states are running, ready"),
        ("created:yesterdayish", "Write a time like 2h"),
        ("task:", "A value is missing."),
        ('key:""', "A value is missing."),
        ("id:x", "Write a number"),
        (" ".join(f"flag:f{number}" for number in range(31)), "at most 30 conditions"),
        ("x" * 2_001, "at most 2000 characters"),
    ],
)
def test_errors__say_what_to_write(admin_page: Client, jobs: dict[str, int], query: str, message: str) -> None:
    assert message in errors(admin_page, query)


@pytest.mark.parametrize(
    "query",
    ["'; drop table x", "%", "a%b", "\\", '"', '""', ":", "()", "key:%", "é", "<b>"],
)
def test_hostile_text__is_answered_and_matches_only_itself(
    admin_page: Client, jobs: dict[str, int], query: str
) -> None:
    page = admin_page.get(pages.JOBS, {"q": query})
    assert page.status_code == 200
    assert not page.context["cl"].result_list
    assert "<b>" not in body(page)


def test_terms__are_read_as_they_are_written() -> None:
    for term in (
        SearchTerm("task", "mail.send"),
        SearchTerm("error", 'a "quoted" word'),
        SearchTerm("", "order:4711"),
        SearchTerm("", "task:x"),
        SearchTerm("", "17"),
        SearchTerm("", "-x"),
        SearchTerm("queue", "a\\b", is_negative=True),
    ):
        assert list(parse_terms(str(term))) == [term], term


def test_hidden_texts__cannot_be_found_out(client_with: MakeClient, jobs: dict[str, int]) -> None:
    client = client_with()
    for query in ("payload:zoë", "payload.user.id:5", "limit:42", 'error:"timed out"'):
        assert "You may not see" in errors(client, query)
    assert found(client, "exception:CardError") == {jobs["failed"]}


def test_search_of_many_jobs__stops_and_can_be_continued(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (search, change_list):
        monkeypatch.setattr(module, "MAX_SEARCHED", 4)
    ids = [make_job("send", {"n": number}) for number in range(10)]
    seen: list[int] = []
    url = pages.JOBS + "?q=payload:n"
    for number in (1, 2, 3):
        page = admin_page.get(url)
        seen += [job.pk for job in page.context["cl"].result_list]
        first = (number - 1) * 4 + 1
        expected = f"the jobs {first} to {min(first + 3, 10)}" if number > 1 else "Only the first 4 jobs of the list"
        assert expected in text(page)
        url = pages.JOBS + page.context["cl"].continue_url()
    assert seen == ids[::-1]
    assert page.context["cl"].continue_url() == ""
    # A file has all that match.
    file = b"".join(admin_page.get(pages.JOBS + "export/", {"q": "payload:n", "format": "json"}))
    assert [row["id"] for row in json.loads(file)] == ids[::-1]
    # So has an action.
    asked = pages.act_on_all(admin_page, "delete", "payload:n")
    assert asked.context["title"] == "Delete 10 jobs?"


def test_terms__can_be_removed_one_by_one(admin_page: Client, jobs: dict[str, int]) -> None:
    page = admin_page.get(pages.JOBS, {"q": "task:charge -flag:slow", "state": "failed"})
    links: dict[str, Any] = dict(page.context["cl"].chips())
    assert links == {
        "task:charge": "?q=-flag%3Aslow&state=failed",
        "-flag:slow": "?q=task%3Acharge&state=failed",
    }


def test_a_job_in_another_state__is_linked(admin_page: Client, jobs: dict[str, int]) -> None:
    page = admin_page.get(pages.JOBS, {"q": f"#{jobs['failed']}", "state": "ready"})
    assert f"Job #{jobs['failed']} is in the state “Failed”." in text(page)
    ((_id, _state, url),) = page.context["cl"].elsewhere()
    assert [job.pk for job in admin_page.get(f"{pages.JOBS}{url}").context["cl"].result_list] == [jobs["failed"]]
    assert "No jobs match." in text(admin_page.get(pages.JOBS, {"q": "#99999999", "state": "ready"}))


def test_a_search_and_filters__must_both_be_met(admin_page: Client, jobs: dict[str, int]) -> None:
    assert found(admin_page, "task:mail", task="mail.send") == {jobs["ready"]}
    assert found(admin_page, "task:mail", task="charge") == set()
    assert found(admin_page, "queue:eu", queue="eu-west", task="mail.pack") == {jobs["queued"]}
    assert found(admin_page, "task:mail", queue="eu-east") == set()


def test_a_slow_search__stops_after_a_second(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_list, "STEP", 2)
    monkeypatch.setattr(change_list, "SEARCH_SECONDS", 0)
    ids = [make_job("send", {"n": number}) for number in range(5)]
    page = admin_page.get(pages.JOBS, {"q": "payload:n"})
    assert "Only the first 2 jobs of the list were searched." in text(page)
    assert [job.pk for job in page.context["cl"].result_list] == ids[:2:-1]
    following = admin_page.get(pages.JOBS + page.context["cl"].continue_url())
    assert [job.pk for job in following.context["cl"].result_list] == [ids[2], ids[1]]
    assert pages.act_on_all(admin_page, "delete", "payload:n").context["title"] == "Delete 5 jobs?"
