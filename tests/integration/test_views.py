"""The progress of a job as JSON and as a page: who may see it, and what is told."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import signing
from django.db import connection
from django.http import HttpRequest
from django.template import Context, Template
from django.urls import reverse

from django_graphile_worker import ResultStatus, progress_token, result
from django_graphile_worker.results import reading
from django_graphile_worker.sql.results import ResultStatus as StoredStatus
from tests.support.admin_pages import job_url
from tests.support.factories import make_failed_job, make_job
from tests.support.results import store_result
from tests.support.rows import in_quotes

pytestmark = pytest.mark.django_db


def report(schema: str, job_id: int, done: float, total: float | None, message: str = "") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into {in_quotes(schema)}._private_progress values (%s, 1, %s, %s, %s, now())",
            [job_id, done, total, message],
        )


def fetch(client: Any, job_id: int) -> Any:
    return client.get(reverse("graphile_worker:progress", args=[progress_token(job_id)]))


def test_token__shows_the_progress_of_its_job(client: Any, worker_schema: str) -> None:
    job_id = make_job("task", locked_by="w/1", attempts=1, payload={"card": 4711})
    report(worker_schema, job_id, 3, 7, "page 3 of 7")
    response = fetch(client, job_id)
    answer = response.json()
    assert (answer["status"], answer["is_finished"], answer["percent"]) == ("running", False, 42)
    told = answer["progress"]
    assert (told["done"], told["total"], told["message"]) == (3, 7, "page 3 of 7")
    assert "4711" not in response.text
    assert "no-store" in response["Cache-Control"]


def test_states__tell_whether_the_job_is_over(client: Any, worker_schema: str) -> None:
    waiting, failed = make_job(), make_failed_job()
    ended, gone = failed + 1, failed + 2
    with connection.cursor() as cursor:
        store_result(cursor, ended, worker_schema, value="secret")
    answers = {job_id: fetch(client, job_id) for job_id in (waiting, failed, ended, gone)}
    told = [(each.json()["status"], each.json()["is_finished"], each.json()["percent"]) for each in answers.values()]
    assert told == [
        ("waiting", False, None),
        ("failed", True, None),
        ("succeeded", True, 100),
        ("gone", True, 100),
    ]
    assert "secret" not in answers[ended].text


@pytest.mark.parametrize("status", ResultStatus)
def test_every_status__is_shown_by_the_views_the_tag_and_the_admin(
    admin_client: Any, worker_schema: str, status: ResultStatus
) -> None:
    if status is ResultStatus.WAITING:
        job_id = make_job()
    elif status is ResultStatus.RUNNING:
        job_id = make_job(locked_by="w/1", attempts=1)
    else:
        job_id = 4711
        with connection.cursor() as cursor:
            store_result(cursor, job_id, worker_schema, status=StoredStatus[status.name])
    found = result(job_id)
    assert found is not None
    assert found.status is status
    name = "Finished" if status is ResultStatus.SUCCEEDED else status.label
    answer = fetch(admin_client, job_id).json()
    assert (answer["status"], answer["status_name"]) == (status.value, name)
    page = admin_client.get(reverse("graphile_worker:progress_page", args=[progress_token(job_id)]))
    tag = Template("{% load graphile_worker %}{% job_progress job %}").render(Context({"job": job_id}))
    assert f">{name}<" in page.text
    assert f">{name}<" in tag
    shown = admin_client.get(job_url(job_id))
    assert shown.status_code == 200
    if found.is_finished:
        assert str(status.label) in shown.text


def test_old_token__is_not_found(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = make_job()
    assert fetch(client, job_id).status_code == 200
    monkeypatch.setattr(reading, "LONGEST_AGE", -1)
    assert fetch(client, job_id).status_code == 404


def test_token_of_another_purpose__is_not_found(client: Any) -> None:
    forged = signing.dumps([make_job(), "default", "default"], salt="another")
    assert client.get(f"/jobs/{forged}.json").status_code == 404


def test_id__is_refused_without_a_function_of_the_project(client: Any, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        response = client.get("/jobs/1.json")
    assert response.status_code == 403
    assert "PROGRESS_PERMISSION" in response.json()["error"]


def may_see_even_jobs(request: HttpRequest, job_id: int) -> bool:
    return request.method == "GET" and job_id % 2 == 0


@pytest.mark.parametrize("permission", [may_see_even_jobs, f"{__name__}.may_see_even_jobs"])
def test_function_of_the_project__decides(client: Any, settings: Any, permission: Any) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "PROGRESS_PERMISSION": permission}
    first = make_job()
    even, odd = (first, make_job()) if first % 2 == 0 else (make_job(), first)
    assert client.get(f"/jobs/{even}.json").json()["status"] == "waiting"
    assert client.get(f"/jobs/{odd}.json").status_code == 403
    assert client.get(f"/jobs/{10**30}.json").status_code == 403


def test_page__moves_without_a_script_until_the_job_is_over(client: Any, worker_schema: str) -> None:
    job_id = make_job("task", locked_by="w/1", attempts=1)
    report(worker_schema, job_id, 1, 4, "<b>one</b>")
    page = client.get(reverse("graphile_worker:progress_page", args=[progress_token(job_id)]))
    assert page["X-Frame-Options"] == "SAMEORIGIN"
    assert '<meta http-equiv="refresh" content="2">' in page.text
    assert 'value="25"' in page.text
    assert "&lt;b&gt;one&lt;/b&gt;" in page.text
    assert "<script" not in page.text
    over = client.get(reverse("graphile_worker:progress_page", args=[progress_token(make_failed_job())]))
    assert "http-equiv" not in over.text
