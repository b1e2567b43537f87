"""manage.py graphile_worker status --check: the health of the queue."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError

from django_graphile_worker import pause, resume
from tests.support.factories import make_job, minutes_ago
from tests.support.limits import make_key, park_job
from tests.support.operating import DEAD, LIVE, execute, make_worker, operate

pytestmark = pytest.mark.django_db


def _ailments(*arguments: str) -> str:
    try:
        operate("status", "--check", *arguments)
    except CommandError as error:
        return str(error)
    return ""


def test_check__fails_for_each_reason_and_passes_without_one() -> None:
    assert "0 workers alive instead of 1" in _ailments()
    assert _ailments("--min-workers", "0") == ""
    make_worker(LIVE)
    assert _ailments() == ""
    assert "1 worker alive instead of 2" in _ailments("--min-workers", "2")
    job_id = make_job("a", run_at=minutes_ago(6))
    assert f"unhealthy: a #{job_id} has been ready for 6 m, longer than 5m." in _ailments()
    assert _ailments("--max-age", "10m") == ""
    operate("fail", str(job_id))
    assert _ailments() == ""
    assert "1 permanently failed job, more than 0" in _ailments("--max-failed", "0")
    assert _ailments("--max-failed", "1") == ""
    make_worker(DEAD, beat=minutes_ago(2))
    assert _ailments() == ""
    make_job("a", locked_by=DEAD)
    assert "1 silent worker holds jobs" in _ailments()


def test_check__does_not_mistake_future_jobs_for_late_ones() -> None:
    make_worker(LIVE)
    make_job("a", run_at=datetime.now(UTC) + timedelta(days=400))
    assert _ailments() == ""


@pytest.mark.parametrize(
    ("paused", "columns"),
    [
        ({"task": "paused"}, {}),
        ({"queue": "mail"}, {"queue_name": "mail"}),
        ({"flag": "bulk"}, {"flags": {"bulk": True}}),
        ({"flag": "bulk"}, {"flags": {"bulk": True, "other": True}, "queue_name": "shop"}),
    ],
)
def test_check__does_not_mistake_paused_jobs_for_late_ones(paused: Any, columns: dict[str, Any]) -> None:
    make_worker(LIVE)
    job_id = make_job("paused", run_at=minutes_ago(60), **columns)
    assert f"paused #{job_id} has been ready for 1 h" in _ailments()
    pause(**paused)
    assert _ailments() == _ailments("--task", "paused") == ""
    assert operate("status", "--json").json["jobs"]["ready"]["count"] == 1
    assert re.search(r"^ready +1$", operate("status").out, re.MULTILINE)
    others = [
        make_job("other", run_at=minutes_ago(minutes), queue_name=queue_name, flags=flags, priority=minutes)
        for minutes, queue_name, flags in ((7, "shop", None), (8, None, {"fine": True}), (9, None, None))
    ]
    for job_id, minutes in zip(reversed(others), (9, 8, 7), strict=True):
        assert f"other #{job_id} has been ready for {minutes} m" in _ailments()
        execute("delete from {schema}._private_jobs where id = %s", [job_id])
    assert _ailments() == ""
    resume(**paused)
    assert "has been ready for 1 h" in _ailments()


def test_check__does_not_mistake_jobs_that_wait_for_a_limit_for_late_ones() -> None:
    make_worker(LIVE)
    park_job(make_key("account", "1"), "a", run_at=minutes_ago(60))
    assert _ailments() == ""
    pause(task="other", create=True)
    assert _ailments() == ""


def test_check__names_the_job_that_no_worker_can_run() -> None:
    make_worker(LIVE, tasks=["send_receipt"])
    job_id = make_job("send_recipt", run_at=minutes_ago(7))
    make_job("send_receipt", run_at=minutes_ago(6))
    problem = f"send_recipt #{job_id} has been ready for 7 m (no live worker has this task), longer than 5m"
    assert _ailments() == f"The queue is unhealthy: {problem}."
    assert "send_receipt #" in _ailments("--task", "send_receipt")
    assert _ailments("--task", "send_receipt", "--max-age", "10m") == ""


def test_check__of_a_task_that_nothing_knows_fails_with_the_name_that_was_meant() -> None:
    """It would find no job of that name, and report for ever that all is well."""
    make_worker(LIVE, tasks=["of_a_worker"])
    make_job("of_a_job")
    for known in ("of_a_worker", "of_a_job", "send_receipt"):
        operate("status", "--check", "--task", known)
    for typed, meant in (("of_a_workr", "of_a_worker"), ("of_a_jbo", "of_a_job"), ("send_recipt", "send_receipt")):
        expected = f"--task: neither a job nor a worker nor this project has a task '{typed}'. Did you mean '{meant}'"
        with pytest.raises(CommandError, match=expected):
            operate("status", "--check", "--task", "of_a_job", "--task", typed)


def test_check__of_a_task_of_this_project_passes_before_its_first_job() -> None:
    make_worker(LIVE)
    execute("delete from {schema}._private_tasks where identifier = 'send_receipt'")
    operate("status", "--check", "--task", "send_receipt")
