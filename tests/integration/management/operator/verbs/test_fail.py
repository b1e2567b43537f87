"""manage.py graphile_worker fail."""

from __future__ import annotations

import pytest

from tests.support.factories import make_job
from tests.support.operating import job_row, operate

pytestmark = pytest.mark.django_db


def test_fail__keeps_the_job_with_its_reason() -> None:
    job_id = make_job("a")
    operate("fail", str(job_id), "--reason", "The customer is gone.")
    reason = "The customer is gone.\n\nNot tried again after attempt 0 of 25."
    assert job_row(job_id, "attempts", "last_error") == (25, reason)
