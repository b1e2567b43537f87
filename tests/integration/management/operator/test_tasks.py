"""manage.py graphile_worker tasks."""

from __future__ import annotations

import pytest

from tests.support.factories import make_failed_job, make_job, make_task, minutes_ago
from tests.support.operating import DEAD, LIVE, make_statistics, make_worker, operate

pytestmark = pytest.mark.django_db


def test_tasks__count_a_failed_job_that_is_due_again_as_ready_alone() -> None:
    make_job("a", attempts=1, run_at=minutes_ago(1))
    make_job("a", attempts=1, run_at=minutes_ago(-1))
    (told,) = [task for task in operate("tasks", "--json").json if task["task_identifier"] == "a"]
    assert (told["ready"], told["retrying"]) == (1, 1)


def test_tasks__tell_what_waits_who_has_it_and_how_it_went() -> None:
    make_worker(LIVE, tasks=["send_receipt", "resize_photo"])
    make_worker("django-worker-other", tasks=["send_receipt"])
    make_worker(DEAD, beat=minutes_ago(2), tasks=["send_receipt"])
    make_job("send_receipt", run_at=minutes_ago(3.5))
    make_job("typo", run_at=minutes_ago(-5), attempts=1)
    make_failed_job("send_receipt")
    make_task("forgotten")
    make_statistics("send_receipt", 2, succeeded=3, failed=1, run_microseconds=2_000_000)
    told = {task["task_identifier"]: task for task in operate("tasks", "--json").json}
    assert "forgotten" not in told
    assert told["typo"] | {"live_workers": 0, "retrying": 1, "is_in_this_project": False} == told["typo"]
    receipt = told["send_receipt"]
    assert (receipt["live_workers"], receipt["ready"], receipt["failed"]) == (2, 1, 1)
    assert (receipt["succeeded"], receipt["failures"], receipt["mean_seconds"]) == (3, 1, 0.5)
    assert told["resize_photo"]["is_in_this_project"]
    (line,) = [line for line in operate("tasks").out.splitlines() if line.startswith("send_receipt ")]
    assert line.split() == ["send_receipt", "2", "1", "3", "m", "-", "1", "4", "1", "500", "ms"]
