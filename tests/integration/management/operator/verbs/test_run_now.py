"""manage.py graphile_worker run-now."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import operate

pytestmark = pytest.mark.django_db


def test_run_now__says_why_a_job_was_not_changed() -> None:
    later, due, failed = make_job("a", run_at=minutes_ago(-5)), make_job("a"), make_failed_job("a")
    with pytest.raises(CommandError) as refused:
        operate("run-now", str(later), str(due), str(failed))
    assert str(refused.value) == (
        f"2 of 3 jobs were not changed: #{due} is due already (run-next moves it to the front); "
        f"#{failed} has failed permanently (use retry)."
    )
