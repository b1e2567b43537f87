"""Verbs that change jobs by their ids."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.core.management import CommandError

from tests.support.factories import make_job, minutes_ago
from tests.support.operating import job_row, operate

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("verb", [("complete",), ("fail",), ("reschedule", "--run-at", "now")])
def test_changes__leave_running_jobs_alone_do_the_others_and_say_so(verb: tuple[str, ...]) -> None:
    running, waiting = make_job("a", locked_by="worker-1"), make_job("a", run_at=minutes_ago(-5))
    missing = waiting + 1
    before = job_row(running, "updated_at", "attempts", "run_at")
    with pytest.raises(
        CommandError, match=f"2 of 3 jobs were not changed: #{running} is running.*#{missing} does not exist"
    ):
        operate(verb[0], str(running), str(waiting), str(missing), *verb[1:])
    assert job_row(running, "updated_at", "attempts", "run_at") == before
    after = job_row(waiting, "attempts", "run_at")
    assert after is None or after[0] == 25 or after[1] < datetime.now(UTC)
