"""manage.py graphile_worker reschedule."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import job_row, operate

pytestmark = pytest.mark.django_db


def test_reschedule__changes_only_what_is_given() -> None:
    job_id = make_failed_job("a", priority=7, run_at=minutes_ago(60))
    operate("reschedule", str(job_id), "--attempts", "0", "--max-attempts", "5")
    assert job_row(job_id, "attempts", "max_attempts", "priority", "run_at < now()") == (0, 5, 7, True)
    operate("reschedule", str(job_id), "--run-at", "+1h", "--priority", "-2")
    assert job_row(job_id, "attempts", "priority", "run_at > now()") == (0, -2, True)


def test_reschedule__without_a_change_is_an_error() -> None:
    with pytest.raises(CommandError, match="One of --run-at"):
        operate("reschedule", str(make_job("a")))


def test_reschedule__says_when_a_job_has_no_attempts_left() -> None:
    job_id = make_failed_job("a")
    assert f"#{job_id} will still not run" in operate("reschedule", str(job_id), "--priority", "3").err
    assert operate("reschedule", str(job_id), "--run-at", "now").err == ""
    assert job_row(job_id, "attempts", "run_at <= now()") == (0, True), "with a time it gets its attempts again"
