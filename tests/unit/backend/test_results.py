"""The ids of task results."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.backend.results import job_id_of, result_id

JOB_IDS = st.integers(min_value=1, max_value=2**63 - 1)


@given(JOB_IDS)
def test_result_id__is_short_safe_in_urls_and_read_back(job_id: int) -> None:
    identity = result_id(job_id, "default")
    assert len(identity) < 64
    assert identity.replace("-", "").replace("_", "").isalnum()
    assert job_id_of(identity, "default") == job_id


@given(JOB_IDS)
def test_id_of_another_installation__is_none(job_id: int) -> None:
    assert job_id_of(result_id(job_id, "default"), "reports") is None


@given(JOB_IDS, st.integers(0, 15), st.characters(codec="ascii"))
def test_mistyped_id__is_none(job_id: int, position: int, character: str) -> None:
    identity = result_id(job_id, "default")
    mistyped = identity[:position] + character + identity[position + 1 :]
    assert mistyped == identity or job_id_of(mistyped, "default") is None


@given(st.none() | st.integers() | st.text() | st.text(min_size=16, max_size=16) | st.binary())
def test_any_other_value__is_none(value: object) -> None:
    assert job_id_of(value, "default") is None
