"""manage.py graphile_worker errors."""

from __future__ import annotations

import pytest

from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import operate

pytestmark = pytest.mark.django_db


def test_errors__are_grouped_by_task_and_class() -> None:
    for number in range(3):
        make_failed_job("send", error=f"shop.errors.Refused: no {number}", updated_at=minutes_ago(number))
    latest = make_job("send", attempts=2, run_at=minutes_ago(-5), last_error="KeyError: 'x'")
    make_job("fine")
    refused, key_error = operate("errors", "--json").json
    assert (refused["error"], refused["failed"], refused["retrying"]) == ("shop.errors.Refused", 3, 0)
    assert (key_error["error"], key_error["retrying"], key_error["latest_job_id"]) == ("KeyError", 1, latest)
    heading, first, _ = operate("errors").out.splitlines()
    assert heading.split() == ["TASK", "ERROR", "FAILED", "RETRYING", "LAST", "SEEN", "JOB", "MESSAGE"]
    assert first.split()[:3] == ["send", "Refused", "3"]
    assert first.endswith("no 0")
    assert operate("errors", "--task", "fine").err == "No job has failed.\n"


def test_errors__of_a_mistyped_task_suggest_the_right_one() -> None:
    make_job("send")
    assert "No job has the task 'sned'. Did you mean 'send'?" in operate("errors", "--task", "sned").err
