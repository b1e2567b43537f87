"""Why a ready job does not run yet."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker import pause
from django_graphile_worker.sql.inspection import overview
from tests.support.admin_pages import body, job_url, make_worker
from tests.support.factories import make_job, make_queue, minutes_ago
from tests.support.operating import execute


def waiting(client: Client, job_id: int) -> str:
    return str(client.get(job_url(job_id)).context["waiting"])


def make_busy_worker(slots: int = 2, **metadata: Any) -> str:
    worker = make_worker("django-worker-1", **{"tasks": ["send", "charge"], "concurrency": slots, **metadata})
    for _ in range(slots):
        make_job("charge", locked_by=worker, run_at=minutes_ago(9))
    return worker


def test_all_slots_are_busy__says_so_and_how_many_jobs_are_before_it(admin_page: Client) -> None:
    make_busy_worker()
    # Of another task of the worker, more urgent, and due before it; then three that are not before it.
    make_job("charge", run_at=minutes_ago(6))
    make_job("send", run_at=minutes_ago(1), priority=-2)
    make_job("send", run_at=minutes_ago(6), key="k")
    job = make_job("send", run_at=minutes_ago(5))
    make_job("send", run_at=minutes_ago(4))
    make_job("send", run_at=minutes_ago(-60), priority=-2)
    make_job("send", run_at=minutes_ago(60), priority=1)
    make_job("unknown to this worker", run_at=minutes_ago(60))
    sentence = "All 2 slots of the workers that handle this task are busy. About 3 jobs are before it."
    assert waiting(admin_page, job) == sentence
    assert sentence in body(admin_page.get(job_url(job)))


def test_slots_are_free__says_how_many(admin_page: Client) -> None:
    make_busy_worker(slots=2)
    make_worker("django-worker-2", tasks=["send"], concurrency=3)
    make_worker("django-worker-3", tasks=["other"], concurrency=50)
    make_worker("django-worker-4", tasks=["send"], concurrency=50, silent=600)
    make_worker("django-worker-5", tasks=["send"], concurrency=50, is_stopping=True)
    job = make_job("send", run_at=minutes_ago(5))
    assert waiting(admin_page, job) == "Of the workers that handle this task, 3 of 5 slots are free."


def test_no_worker__is_told_from_no_worker_with_the_task(admin_page: Client) -> None:
    job = make_job("send", run_at=minutes_ago(5))
    assert waiting(admin_page, job) == "No worker is running."
    make_worker("django-worker-1", tasks=["other"], concurrency=5)
    assert waiting(admin_page, job) == "No running worker handles this task."


def test_forbidden_flag__is_named_as_the_cause(admin_page: Client) -> None:
    make_worker("django-worker-1", tasks=["send"], concurrency=5, forbidden_flags=["slow"])
    job = make_job("send", run_at=minutes_ago(5), flags={"slow": True})
    assert waiting(admin_page, job) == "The workers that handle this task forbid a flag of the job."
    assert "5 of 5 slots are free" in waiting(admin_page, make_job("send", run_at=minutes_ago(5)))
    make_worker("django-worker-2", tasks=["send"], concurrency=3)
    assert "3 of 3 slots are free" in waiting(admin_page, job)


def test_queue_and_pause__come_before_the_slots(admin_page: Client) -> None:
    worker = make_busy_worker()
    make_queue("eu", locked_by=worker, locked_at=minutes_ago(1))
    job = make_job("send", queue_name="eu", run_at=minutes_ago(5))
    assert waiting(admin_page, job) == "A worker holds its queue."
    make_job("charge", queue_name="eu", run_at=minutes_ago(7), locked_by=worker, locked_at=minutes_ago(1))
    assert waiting(admin_page, job) == "A job of its queue runs."
    pause(task="send", by="demo", reason="Provider down")
    assert waiting(admin_page, job) == "Paused by demo: Provider down"


@pytest.mark.parametrize(
    "values",
    [{"run_at": minutes_ago(-5)}, {"locked_by": "worker"}, {"attempts": 25}],
    ids=["scheduled", "running", "failed"],
)
def test_other_jobs__have_no_such_sentence(admin_page: Client, values: dict[str, Any]) -> None:
    assert waiting(admin_page, make_job("send", **values)) == ""


def test_of_a_queue_one_job_counts_unless_a_worker_holds_it(admin_page: Client) -> None:
    make_busy_worker()
    for queue, number in (("free", 3), ("held", 4)):
        for _ in range(number):
            make_job("send", queue_name=queue, run_at=minutes_ago(6))
    execute("update {schema}._private_job_queues set locked_at = now(), locked_by = 'x' where queue_name = 'held'")
    job = make_job("send", run_at=minutes_ago(5))
    assert "About 1 job is before it." in waiting(admin_page, job)


def test_paused_tasks__are_not_before_it(admin_page: Client) -> None:
    make_busy_worker()
    make_job("charge", run_at=minutes_ago(6))
    job = make_job("send", run_at=minutes_ago(5))
    pause(task="charge")
    assert "before it" not in waiting(admin_page, job)


def test_many_jobs__are_counted_to_a_limit_and_future_jobs_are_not_read(
    admin_page: Client, worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_busy_worker()
    first = make_job("send", run_at=minutes_ago(60))
    execute(
        "insert into {schema}._private_jobs (task_id, run_at, priority) select task_id, now() + interval '1 day', -1"
        " from {schema}._private_jobs, generate_series(1, 3000) where id = %s",
        [first],
    )
    execute(
        "insert into {schema}._private_jobs (task_id, run_at) select task_id, run_at from {schema}._private_jobs,"
        " generate_series(1, 3000) where id = %s",
        [first],
    )
    job = make_job("send", run_at=minutes_ago(5))
    assert "More than 1,000 jobs are before it." in waiting(admin_page, job)
    read: list[int] = []

    def explain(run: Any, statement: str, parameters: Any, many: bool, context: dict[str, Any]) -> Any:
        if "gw:jobs-before" in statement and "explain" not in statement:
            with connection.cursor() as cursor:
                cursor.execute(f"explain (analyze, format json) {statement}", parameters)
                (plan,) = cursor.fetchone()[0]
            read.append(_rows(plan["Plan"]))
        return run(statement, parameters, many, context)

    with connection.execute_wrapper(explain):
        waiting(admin_page, job)
    assert read[0] <= overview.MAX_BEFORE + 50


def _rows(plan: dict[str, Any]) -> int:
    """Return how many rows of jobs a plan reads."""
    own = 0
    if plan.get("Relation Name") == "_private_jobs":
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return int(own) + sum(_rows(each) for each in plan.get("Plans", ()))
