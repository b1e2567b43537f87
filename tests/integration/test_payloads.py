"""Whatever the API accepts, PostgreSQL stores and Python reads back; whatever it refuses, it refuses by itself."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_graphile_worker import JobSpec, PayloadError, add_job, add_jobs, models, permanently_fail_jobs

pytestmark = pytest.mark.django_db

# Everything that Python's text, numbers and containers can be, the unstorable included.
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=5), children),
    max_leaves=12,
)
in_one_transaction = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def is_storable(value: Any) -> bool:
    """An oracle that knows nothing of the encoder."""
    if isinstance(value, str):
        return all(character != "\x00" and not "\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    if isinstance(value, dict):
        return all(is_storable(part) for item in value.items() for part in item)
    if isinstance(value, list):
        return all(map(is_storable, value))
    return True


@in_one_transaction
@given(anything.filter(lambda payload: payload is not None))
def test_add_job_stores_a_payload_as_it_is__or_refuses_it(payload: Any) -> None:
    if is_storable(payload):
        job = add_job("a", payload)
        assert job.payload == models.Job.objects.get(pk=job.id).payload == payload
    else:
        # The transaction goes on: nothing of it has reached the database.
        with pytest.raises(PayloadError, match=r" at \$"):
            add_job("a", payload)


@in_one_transaction
@given(st.lists(anything.filter(is_storable).filter(lambda payload: payload is not None), min_size=1, max_size=5))
def test_add_jobs_stores_payloads_as_they_are(payloads: list[Any]) -> None:
    jobs = add_jobs([JobSpec("a", payload) for payload in payloads])
    assert [job.payload for job in jobs] == payloads
    assert [models.Job.objects.get(pk=job.id).payload for job in jobs] == payloads


@in_one_transaction
@given(st.lists(st.lists(anything.filter(is_storable)), min_size=1, max_size=4), st.integers(1, 3))
def test_arrays_under_one_key_are_joined__however_they_are_added(arrays: list[list[Any]], batch_size: int) -> None:
    job_id = add_job("a", arrays[0], job_key="k").id
    rest = [JobSpec("a", array, job_key="k") for array in arrays[1:]]
    for start in range(0, len(rest), batch_size):
        add_jobs(rest[start : start + batch_size])
    joined: list[Any] = functools.reduce(operator.iadd, arrays, [])
    (job,) = permanently_fail_jobs([job_id])
    assert job.payload == joined
