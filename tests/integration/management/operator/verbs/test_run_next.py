"""manage.py graphile_worker run-next."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from tests.support.factories import make_job, minutes_ago
from tests.support.operating import job_row, operate

pytestmark = pytest.mark.django_db


def test_run_next__says_why_a_job_was_not_changed() -> None:
    other, later = make_job("a", priority=-3), make_job("a", run_at=minutes_ago(-5))
    first, due = make_job("a", priority=-7), make_job("a")
    with pytest.raises(CommandError) as refused:
        operate("run-next", str(first), str(due), str(later))
    assert str(refused.value) == (
        f"2 of 3 jobs were not changed: #{first} is before all other jobs already; "
        f"#{later} is not due yet (use run-now)."
    )
    priorities = [(job_row(each, "priority") or ())[0] for each in (other, first, due)]
    assert priorities == [-3, -7, -4]
