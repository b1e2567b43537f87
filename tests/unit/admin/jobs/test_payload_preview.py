"""The beginning of a payload in a list, with secrets hidden wherever the text ends."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.admin.jobs.payload_preview import payload_preview

SECRET = "zq7hunter"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "{}"),
        ("17", "17"),
        ('"text"', '"text"'),
        ('{"a":1,\n "b":[true,null]}', '{"a": 1, "b": [true, null]}'),
        (r'{"caf\u00e9": "\u2713"}', '{"café": "✓"}'),
        ('{"password": "a b", "c": 3}', '{"password": ••••••, "c": 3}'),
        ('{"password": "a b', '{"password": ••••••'),
        (r'{"\u0070assword": {"x": ["}", "]"]}, "c": 3}', '{"password": ••••••, "c": 3}'),
        ('[{"token": [1, {"a": 2}]}, {"b": 1}]', '[{"token": ••••••}, {"b": 1}]'),
        (r'{"a": "\ud800"}', '{"a": "?"}'),
        ("", ""),
        ("}}]]", "}}]]"),
    ],
)
def test_preview__is_one_line_without_secrets(text: str, expected: str) -> None:
    assert payload_preview(text) == expected


def test_long_payload__is_cut() -> None:
    preview = payload_preview('{"text": "' + "x" * 500)
    assert len(preview) == 81
    assert preview.endswith("…")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", 'quo"te', "{"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(before=JSON, inside=JSON, after=JSON, end=st.integers(0, 300))
def test_secret__is_hidden_wherever_the_text_ends(before: object, inside: object, after: object, end: int) -> None:
    value = {"first": before, "api_key": [{"deep": SECRET}, inside, SECRET], "last": [after, {"password": SECRET}]}
    for text in (json.dumps(value), json.dumps(value, indent=2)):
        assert SECRET[:3] not in payload_preview(text[:end], longest=10_000)
    assert payload_preview(json.dumps(value), longest=10_000).endswith('{"password": ••••••}]}')
