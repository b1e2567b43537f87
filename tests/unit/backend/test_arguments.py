"""Arguments as JSON: what is changed as the framework does, and what is refused."""

from __future__ import annotations

import json
from collections import UserDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.backend.arguments import normalized
from django_graphile_worker.exceptions import PayloadError

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=12,
)


@given(JSON)
def test_json__stays_as_it_is(value: Any) -> None:
    assert normalized(value, "args") == value
    json.dumps(normalized(value, "args"), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [((1, (2,)), [1, [2]]), (b"text", "text"), (UserDict(a=(1,)), {"a": [1]}), (range(2), [0, 1])],
)
def test_other_types__become_json(value: Any, expected: Any) -> None:
    assert normalized(value, "args") == expected


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (float("nan"), ValueError, "expected a finite number, got nan at args."),
        ([1, {"a": float("inf")}], ValueError, "expected a finite number, got inf at args[1].a."),
        ({"a": {None: 1}}, TypeError, "expected strings as keys, got None (NoneType) at args.a."),
        (
            {"the key": object()},
            TypeError,
            'got object (pass text or a number that the task converts) at args["the key"].',
        ),
        (b"\xff", ValueError, "Unsupported value: expected text, got bytes that are not UTF-8 at args."),
        ([{1}], TypeError, "got set (pass a list) at args[0]."),
    ],
)
def test_what_json_cannot_hold__is_refused_with_its_place(value: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as refused:
        normalized(value, "args")
    assert isinstance(refused.value, PayloadError)
    assert str(refused.value).endswith(message)


def test_cycle__is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(PayloadError, match="no cycles"):
        normalized(value, "args")
