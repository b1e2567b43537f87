"""manage.py graphile_worker complete."""

from __future__ import annotations

import pytest

from tests.support.factories import make_failed_job, make_job
from tests.support.operating import job_row, operate

pytestmark = pytest.mark.django_db


def test_complete__deletes_waiting_and_failed_jobs() -> None:
    ids = [make_job("a"), make_failed_job("a")]
    said = operate("delete", *map(str, ids))
    assert said.out.startswith("Deleted ")
    assert [job_row(job_id, "id") for job_id in ids] == [None, None]
    assert all(f"#{job_id}" in said.out for job_id in ids)
