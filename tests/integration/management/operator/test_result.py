"""``graphile_worker result``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management.base import CommandError
from django.db import connection

from django_graphile_worker.results.waiting import close_listeners
from tests.support.factories import make_failed_job, make_job
from tests.support.operating import operate
from tests.support.results import store_result
from tests.support.rows import in_quotes


@pytest.fixture(autouse=True)
def closed_listeners() -> Iterator[None]:
    yield
    close_listeners()


@pytest.fixture
def ended(db: None, worker_schema: str) -> int:
    with connection.cursor() as cursor:
        store_result(cursor, 4711, worker_schema, value={"total": 12})
        cursor.execute(
            f"insert into {in_quotes(worker_schema)}._private_progress values (4711, 1, 7, 7, 'all pages', now())"
        )
    return 4711


def test_result__shows_the_value_and_the_progress(ended: int) -> None:
    shown = operate("result", "4711").out
    assert "succeeded" in shown
    assert "7 of 7 (100 %) all pages" in shown
    assert '  "total": 12' in shown


def test_result__is_json_for_programs(ended: int) -> None:
    shown = operate("result", "#4711", "--json").json
    assert (shown["status"], shown["value"], shown["progress"]["done"]) == ("succeeded", {"total": 12}, 7)
    assert shown["attempts"] == []
    assert shown["finished_at"].endswith("+00:00")


@pytest.mark.django_db
def test_failed_job__is_an_error() -> None:
    job_id = make_failed_job(error="ValueError: no\x1b[31m")
    with pytest.raises(CommandError, match=rf"^Job {job_id} has failed\.$"):
        operate("result", str(job_id))


@pytest.mark.django_db
def test_unknown_job__is_explained() -> None:
    with pytest.raises(CommandError, match=r"KEEP_RESULTS says so\.$"):
        operate("result", "4711")


@pytest.mark.django_db(transaction=True)
def test_wait__ends_after_the_timeout_and_shows_the_job() -> None:
    job_id = make_job("export")
    output = operate("result", str(job_id), "--wait", "0.1")
    assert "waiting" in output.out
    assert "within 0.1 seconds" in output.err
    with pytest.raises(CommandError, match=rf"no job {job_id + 1}, and no result of it: completed jobs are deleted"):
        operate("result", str(job_id + 1), "--wait", "5")
