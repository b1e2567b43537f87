"""Tasks of Django Tasks in the tests of a project: they run, and their results follow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from django_graphile_worker.testing import assert_enqueued, clock, immediate, run_jobs

pytestmark = pytest.mark.django_db

START = datetime(2030, 1, 1, tzinfo=UTC)


def test_run_jobs__runs_tasks_and_their_results_follow(framework: Any) -> None:
    result = framework.add.enqueue(1, right=2)
    later = framework.later.enqueue("word")
    assert_enqueued(framework.add, payload={"args": [1], "kwargs": {"right": 2}}, count=1)
    assert [ran.result for ran in run_jobs()] == [3, "WORD"]
    for each, value in ((result, 3), (later, "WORD")):
        each.refresh()
        assert (each.status, each.return_value, each.attempts) == ("SUCCESSFUL", value, 1)


def test_failures__are_raised_or_recorded(framework: Any) -> None:
    result = framework.broken.enqueue("no order 7")
    with pytest.raises(ValueError, match="no order 7"):
        run_jobs()
    result.refresh()
    assert (result.status, len(result.errors)) == ("READY", 1)
    run_jobs(on_error="record")
    result.refresh()
    assert (result.status, len(result.errors)) == ("FAILED", 3)
    assert result.errors[0].exception_class is ValueError


def test_clock__moves_the_times_of_results(framework: Any) -> None:
    with clock(START) as now:
        result = framework.add.using(run_after=timedelta(days=1)).enqueue(1)
        now.advance(days=3)
        run_jobs(cron=False)
        result.refresh()
    assert (result.enqueued_at, result.return_value) == (START, 1)
    assert abs(result.started_at - (START + timedelta(days=1))) < timedelta(minutes=1)
    assert abs(result.finished_at - (START + timedelta(days=1))) < timedelta(minutes=1)


def test_immediate_mode__runs_at_the_end_of_the_transaction(framework: Any) -> None:
    with immediate():
        with transaction.atomic():
            result = framework.add.enqueue(1)
            result.refresh()
            assert result.status == "READY"
        result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", 1)
