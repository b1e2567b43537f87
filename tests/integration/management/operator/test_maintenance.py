"""``cleanup``."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from tests.support.factories import make_failed_job, make_queue, make_task, minutes_ago
from tests.support.operating import job_row, operate

pytestmark = pytest.mark.django_db


def test_cleanup__deletes_what_is_asked_for_and_no_more() -> None:
    old = make_failed_job("a", run_at=minutes_ago(60 * 24 * 8), updated_at=minutes_ago(60 * 24 * 8))
    new = make_failed_job("a", run_at=minutes_ago(60), updated_at=minutes_ago(60))
    # Tests that commit may leave names behind.
    operate("cleanup", "--queues", "--tasks")
    make_queue("unused")
    make_task("unused")
    assert operate("cleanup", "--permanently-failed-older-than", "7d", "--json").json == {
        "jobs": 1,
        "queues": 0,
        "tasks": 0,
        "is_complete": True,
    }
    assert (job_row(old, "id"), job_row(new, "id")) == (None, (new,))
    assert "Deleted 0 jobs, 1 queue name, 0 task names." in operate("cleanup", "--queues").out
    assert operate("cleanup", "--tasks", "--json").json["tasks"] == 1


def test_cleanup__of_nothing_is_an_error() -> None:
    with pytest.raises(CommandError, match="is required"):
        operate("cleanup")
    with pytest.raises(CommandError, match="expected a time phrase"):
        operate("cleanup", "--permanently-failed-older-than", "week")
