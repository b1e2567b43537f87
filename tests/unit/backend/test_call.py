"""The call of a Django task as a payload, and its arguments as JSON."""

from __future__ import annotations

from collections import UserDict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st

from django_graphile_worker.backend.call import Call, normalized

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


@pytest.mark.parametrize("using", [5, {"priority": "x", "run_after": "noon", "backend": 1}, {"run_after": 1e300}])
def test_payload_of_another_program__is_read_without_what_makes_no_sense(using: Any) -> None:
    assert Call.from_payload({"args": [1], "using": using}) == Call([1])


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [((1, (2,)), [1, [2]]), (b"text", "text"), (UserDict(a=(1,)), {"a": [1]}), (range(2), [0, 1])],
)
def test_other_types__become_json(value: Any, expected: Any) -> None:
    assert normalized(value, "args") == expected
