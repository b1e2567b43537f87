"""manage.py graphile_worker remove."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from tests.support.factories import make_job
from tests.support.operating import job_row, operate

pytestmark = pytest.mark.django_db


def test_remove__deletes_by_key_and_tells_of_keys_without_a_job() -> None:
    job_id = make_job("a", key="k")
    with pytest.raises(CommandError, match="There is no job with the key 'missing'"):
        operate("remove", "k", "missing")
    assert job_row(job_id, "id") is None


def test_remove__of_a_running_job_says_that_it_goes_on() -> None:
    job_id = make_job("a", key="k", locked_by="worker-1", attempts=1)
    assert f"#{job_id} is running" in operate("remove", "k").err
    assert job_row(job_id, "key", "attempts = max_attempts") == (None, True)
