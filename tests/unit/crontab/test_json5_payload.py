"""Payloads in JSON and JSON5, with the position of what does not fit."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker import CrontabError, parse_crontab
from django_graphile_worker.crontab.json5_payload import MAX_JSON5_LENGTH, Json5Error, loads

VALID = [
    ("{}", {}),
    (" { a : 1 , 'b' : [ 2 , ] , \"c\" : { } , } // end", {"a": 1, "b": [2], "c": {}}),
    ("/* before */ {/**/a/**/:/* in */null} /* after */", {"a": None}),
    ("{$: 1, _x: 2, über: 3, a1$: 4, null: 6, true: 7}", {"$": 1, "_x": 2, "über": 3, "a1$": 4, "null": 6, "true": 7}),
    ("[0, +1, 12, 1., .5, 1.5, -2e3, 1E-2, 0x1F]", [0, 1, 12, 1.0, 0.5, 1.5, -2000.0, 0.01, 31]),
    ("[+Infinity, -Infinity]", [math.inf, -math.inf]),
    ("'it\\'s'", "it's"),
    ("'one \\\nline'", "one line"),
    ("'\\x41\\u00fc\\ud83d\\ude00'", "Aü\U0001f600"),
    ("{'\\ud83d\\ude00': 1}", {"\U0001f600": 1}),
    ("{a: 1, a: 2}", {"a": 2}),
    ("{नमस्ते: 1}", {"नमस्ते": 1}),
]
INVALID = [
    ("", 1, 1),
    ("{", 1, 2),
    ("{a:1 b:2}", 1, 6),
    ("{a: 1,\n b: 2 c: 3}", 2, 7),
    ("[1,,2]", 1, 4),
    ("{a:1}}", 1, 6),
    ("undefined", 1, 1),
    ("01", 1, 2),
    ("-'a'", 1, 2),
    ("{a: /* open }", 1, 14),
]


@pytest.mark.parametrize(("text", "value"), VALID)
def test_reads_what_the_standard_allows(text: str, value: Any) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(("text", "line", "column"), INVALID)
def test_refuses_the_rest_and_says_where(text: str, line: int, column: int) -> None:
    with pytest.raises(Json5Error, match=rf"at line {line}, column {column}$"):
        loads(text)


@pytest.mark.parametrize("digits", ["1" * 5000, "0x" + "f" * 5000])
def test_refuses_a_number_with_too_many_digits(digits: str) -> None:
    with pytest.raises(Json5Error, match="4300 digits"):
        loads(f"{{a: {digits}}}")


@given(st.text(alphabet="{}[]:,'\"\\/* \n0123456789.+-eExXaInuft", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(Json5Error):
        json.dumps(loads(text))


def test_a_large_payload_of_json_is_read() -> None:
    large = {"a": "x" * 2_000_000}
    [item] = parse_crontab(f"* * * * * task {json.dumps(large)}")
    assert item.payload == large


@pytest.mark.parametrize(
    "text",
    ["{a: '" + "x" * 1_000_000 + "'}", "{a: [" + "1," * 300_000 + "]}", "{" + "a:{" * 100_000 + "}"],
    ids=["string", "array", "nested"],
)
def test_a_large_payload_of_json5_is_refused_at_once(text: str) -> None:
    """The parser would need seconds or minutes for each of these."""
    began = time.monotonic()
    with pytest.raises(
        CrontabError, match=f"line 1, column 17: expected JSON, or JSON5 of at most {MAX_JSON5_LENGTH:,}"
    ):
        parse_crontab(f"* * * * * task {text}")
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("text", ["{a:" + "[" * 4000 + "]" * 4000 + "}", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_a_payload_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(CrontabError, match="a payload that is nested less deeply"):
        parse_crontab(f"* * * * * task {text}")
