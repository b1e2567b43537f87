"""The reader of JSON5, against the package that knows all of it."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import json5
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from django_graphile_worker.crontab import parse_crontab
from django_graphile_worker.crontab.json5 import Json5Error, loads

VALID = [
    "{}",
    "[]",
    " { a : 1 , 'b' : [ 2 , ] , \"c\" : { } , } // end",
    "/* before */ {/**/a/**/:/* in */null} /* after */",
    "{$: 1, _x: 2, über: 3, a1$: 4, \\u0061b: 5, null: 6, true: 7}",
    "[0, -0, +1, 12, 1., .5, 1.5, -2e3, 1E-2, 0x1F, -0xff, +Infinity, -Infinity]",
    "'it\\'s'",
    '"\\b\\f\\n\\r\\t\\v\\0\\x41\\u00fc\\ud83d\\ude00\\q\\/"',
    "'one \\\nline, two \\\r\nlines'",
    "'\u2028 and \u2029'",
    "\ufeff[true,\xa0false,\u3000null]",
    "{a: {b: {c: [[[1]]]}}}",
    "{a: 1, a: 2}",
    # Names with combining marks and connecting punctuation.
    "{नमस्ते: 1, A\U0001d17b: 2, a\u203fb\u0301c\\u0301: 3}",
    "'say \"hello\"'",
    '"tab\tinside"',
]
INVALID = [
    ("", 0),
    ("{", 1),
    ("{a}", 2),
    ("{a:}", 3),
    ("{a:1 b:2}", 5),
    ("{1: 2}", 1),
    ("[1,,2]", 3),
    ("[1 2]", 3),
    ("{,}", 1),
    ("{a:1}}", 5),
    ("tru", 0),
    ("undefined", 0),
    ("true\u0301", 0),
    ("{\u0301a: 1}", 1),
    ("01", 0),
    ("1a", 0),
    ("0x", 0),
    ("+", 0),
    ("'open", 0),
    ("'two\nlines'", 0),
    ("'\\x4'", 1),
    ("'\\u12'", 1),
    ("'\\1'", 1),
    ("'\\01'", 1),
    ("{a: /* open }", 4),
    ("-'a'", 0),
]


def same(ours: Any, theirs: Any) -> bool:
    return json.dumps(ours) == json.dumps(theirs)


@pytest.mark.parametrize("text", VALID)
def test_reads_what_the_standard_allows(text: str) -> None:
    assert same(loads(text), json5.loads(text))


def test_not_a_number_is_one() -> None:
    assert math.isnan(loads("NaN"))


@pytest.mark.parametrize(("text", "offset"), INVALID)
def test_refuses_the_rest_and_says_where(text: str, offset: int) -> None:
    with pytest.raises(Json5Error) as caught:
        loads(text)
    assert caught.value.offset == offset
    with pytest.raises(ValueError):
        json5.loads(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(json_values, st.booleans())
def test_reads_back_whatever_was_written(value: Any, as_ascii: bool) -> None:
    assert same(loads(json.dumps(value, ensure_ascii=as_ascii)), value)
    written = json5.dumps(value, ensure_ascii=as_ascii)
    # The package writes "\\0" in front of a digit as well, which JSON5 does not allow.
    assume(not re.search(r"\\0[0-9]", written))
    assert same(loads(written), value)


@given(st.text(alphabet="{}[]:,'\"\\/* \n0123456789.+-eExXaInuft", max_size=12))
def test_agrees_about_any_text(text: str) -> None:
    try:
        theirs = json5.loads(text)
    except (ValueError, RecursionError):
        with pytest.raises(Json5Error):
            loads(text)
    else:
        assert same(loads(text), theirs)


@pytest.mark.parametrize(
    "text",
    [
        "{a: '" + "x" * 2_000_000 + "'}",
        "{a: '" + "\\n" * 1_000_000 + "'}",
        "{" + ", ".join(f"key{number}: {number}" for number in range(100_000)) + "}",
        "{a: [" + "1," * 300_000 + "]}",
        "{a: 1 /*" + "*" * 1_000_000 + "*/}",
    ],
    ids=["string", "escapes", "object", "array", "comment"],
)
def test_a_large_payload_is_read_in_one_pass(text: str) -> None:
    """The package takes a second for every 20,000 characters: minutes for each of these."""
    [item] = parse_crontab(f"* * * * * task {text}")
    assert item.payload


@pytest.mark.parametrize("text", ["{a: '" + "x" * 1_000_000, "{" + "a:{" * 100_000, "{a: /*" + "x" * 1_000_000])
def test_what_is_wrong_with_a_large_payload_is_said_at_once(text: str) -> None:
    with pytest.raises((Json5Error, RecursionError)):
        loads(text)
