"""The call of a Django task as a payload."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker.backend.call import Call
from django_graphile_worker.exceptions import PayloadError

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "call",
    [
        Call([1], {"a": 2}),
        Call(priority=-5, backend="reports"),
        Call(run_after=NOON),
        Call(run_after=timedelta(hours=1)),
    ],
)
def test_call__is_read_back(call: Call) -> None:
    assert Call.from_payload(call.to_payload()) == call


def test_payload__has_what_differs_from_the_defaults() -> None:
    assert Call([1]).to_payload() == {"args": [1], "kwargs": {}}
    assert Call(priority=3).to_payload()["using"] == {"priority": 3}


@pytest.mark.parametrize(
    ("run_after", "expected"), [(None, None), (NOON, NOON), (timedelta(hours=1), NOON + timedelta(hours=1))]
)
def test_run_after__of_a_timedelta_counts_from_the_moment_of_the_call(run_after: Any, expected: Any) -> None:
    assert Call(run_after=run_after).run_after_of(NOON) == expected


@pytest.mark.parametrize("payload", [[], 5, {"args": {}}, {"kwargs": []}, {"args": None}])
def test_payload_that_is_no_call__is_a_final_error(payload: Any) -> None:
    with pytest.raises(PayloadError) as refused:
        Call.from_payload(payload)
    assert refused.value.is_misfit


@pytest.mark.parametrize("using", [5, {"priority": "x", "run_after": "noon", "backend": 1}, {"run_after": 1e300}])
def test_payload_of_another_program__is_read_without_what_makes_no_sense(using: Any) -> None:
    assert Call.from_payload({"args": [1], "using": using}) == Call([1])


def test_empty_payload__is_a_call_without_arguments() -> None:
    assert Call.from_payload(None) == Call.from_payload({}) == Call()
