"""A search for texts reads some of the jobs of a list; what it says of the others, and what it finds nevertheless."""

from __future__ import annotations

import pytest
from django.test import Client

from django_graphile_worker.admin.jobs import change_list
from tests.support.admin_pages import JOBS, job_url, listed, make_worker, text
from tests.support.factories import make_failed_job, make_job, minutes_ago


@pytest.fixture(autouse=True)
def few_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_list, "MAX_SEARCHED", 4)
    monkeypatch.setattr(change_list, "STEP", 2)


def found(client: Client, **query: str) -> list[int]:
    return [job.pk for job in listed(client.get(JOBS, query))]


def test_an_error_is_searched_among_the_jobs_that_have_failed(admin_page: Client) -> None:
    failed = make_failed_job("send", last_error="KeyError: mango")
    retrying = make_job("send", attempts=2, last_error="KeyError: mango", run_at=minutes_ago(-5))
    for _ in range(6):
        make_job("send")
    assert sorted(found(admin_page, q="error:mango")) == [failed, retrying]


def test_a_key_is_found_however_many_jobs_are_newer(admin_page: Client) -> None:
    wanted = make_job("send", key="order-7")
    for number in range(6):
        make_job("send", key=f"order-7{number}")
    assert found(admin_page, q="order-7")[0] == wanted
    assert found(admin_page, q="order-7").count(wanted) == 1
    assert found(admin_page, q="order-7 task:pack") == []


def test_a_search_that_may_find_more_says_so(admin_page: Client) -> None:
    make_job("send", priority=5)
    for _ in range(6):
        make_job("send")
    page = admin_page.get(JOBS, {"q": "priority:5"})
    assert "None found yet." in text(page)
    assert "Only the first 4 jobs of the list were searched." in text(page)
    assert len(listed(admin_page.get(JOBS, {"q": "priority:5", "continued": "4"}))) == 1


def test_a_job_of_a_silent_worker__is_not_said_to_run(admin_page: Client) -> None:
    lost, alive = make_worker("django-worker-lost", silent=900), make_worker("django-worker-alive", silent=1)
    page = text(admin_page.get(job_url(make_job("send", locked_by=lost))))
    assert "Its worker has been silent for 15 min" in page
    assert "A worker is running this job" not in page
    assert "A worker is running this job" in text(admin_page.get(job_url(make_job("send", locked_by=alive))))
