"""The page of a job."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from django_graphile_worker.admin.refreshed_regions import HEADER
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, job_url, text
from tests.support.factories import make_job, make_task, minutes_ago
from tests.support.operating import execute

TRACEBACK = """ValueError: no

Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 3, in send
    raise ValueError("no")
  File "/x/site-packages/lib.py", line 5, in f
    g()
ValueError: no"""


def test_shows_everything_about_a_job(admin_page: Client) -> None:
    job_id = make_job(
        "send",
        {"user": {"name": "Ada", "ids": [1, 2]}},
        queue_name="eu",
        key="ada-1",
        flags={"slow": True},
        priority=7,
        attempts=2,
        max_attempts=9,
        last_error=TRACEBACK,
        run_at=minutes_ago(-10),
    )
    shown = text(admin_page.get(job_url(job_id)))
    for expected in ("send #", "Retrying", "2 of 9", "ada-1", "slow", "eu", '"Ada"', "ValueError: no"):
        assert expected in shown
    assert "/srv/shop/tasks.py :3 send" in shown
    assert "1 library frame" in shown
    assert re.search("Next attempt in (9|10) min", shown)
    assert "job_key='ada-1'" in shown
    assert "payload => " in shown


def test_a_missing_job_is_explained(admin_page: Client) -> None:
    response = admin_page.get(job_url(999_999))
    assert response.status_code == 404
    assert "There is no job #999999 Not found The job that was added last is #" in text(response)


def test_a_job_that_has_ended_is_told_from_one_that_never_was(admin_page: Client) -> None:
    job_id = make_job("send")
    execute("delete from {schema}._private_jobs where id = %s", [job_id])
    response = admin_page.get(job_url(job_id))
    assert response.status_code == 404
    assert f"Job #{job_id} has ended Ended It ended or was deleted." in text(response)
    assert "HISTORY" in text(response)


def test_a_page_that_is_open_when_its_job_ends_shows_the_end(admin_page: Client) -> None:
    job_id = make_job("send")
    execute("delete from {schema}._private_jobs where id = %s", [job_id])
    response = admin_page.get(job_url(job_id), headers={HEADER: "none"})
    assert response.status_code == 200
    assert 'id="gw-job" data-refresh data-refresh-end' in body(response)
    assert 'id="gw-job-error" data-refresh' in body(response), "the error of an earlier attempt disappears"
    assert "gw-job-payload" not in body(response), "the payload stays as it was last seen"


def test_every_part_of_the_page_renews(admin_page: Client) -> None:
    job_id = make_job("send")
    before = body(admin_page.get(job_url(job_id), headers={HEADER: "none"}))
    assert "ValueError: no" not in before
    execute(
        "update {schema}._private_jobs set last_error = %s, attempts = 25, payload = %s where id = %s",
        [TRACEBACK, '{"corrected": 1}', job_id],
    )
    after = body(admin_page.get(job_url(job_id), headers={HEADER: "none"}))
    assert "ValueError: no" in after
    assert "gw-state-failed" in after
    assert "corrected" in after
    assert "25 of 25" in after


@pytest.mark.parametrize("object_id", ["abc", "-1", "1.5", "9" * 40, "٣"])
def test_an_invalid_id_is_not_found(admin_page: Client, object_id: str) -> None:
    assert admin_page.get(f"{pages.JOBS}{object_id}/change/").status_code == 404


def test_ids_beyond_what_javascript_can_count_are_exact(admin_page: Client) -> None:
    for job_id in (2**53 + 1, 2**63 - 1):
        make_job_with_id(job_id)
        assert f"#{job_id}" in text(admin_page.get(job_url(job_id)))
        listed = body(admin_page.get(pages.JOBS, {"q": f"id:{job_id}"}))
        assert f'href="{job_url(job_id)}"' in listed
        assert f'value="{job_id}"' in listed


def make_job_with_id(job_id: int) -> None:
    execute(
        "insert into {schema}._private_jobs (id, task_id) overriding system value values (%s, %s)",
        [job_id, make_task("send")],
    )
