"""Rows as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from django_graphile_worker.admin.export import write_csv, write_json
from django_graphile_worker.admin.formatting import EARLIEST, LATEST

COLUMNS = ("id", "name", "at", "payload")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def cells(*rows: dict[str, Any]) -> list[list[str]]:
    return list(csv.reader(io.StringIO("".join(write_csv([rows], COLUMNS)), newline="")))[1:]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "\u00a0=", "\uff1d"])
def test_text_that_a_spreadsheet_would_run__begins_with_an_apostrophe(start: str) -> None:
    text = f'{start}HYPERLINK("http://example.org","x")'
    ((number, written, *rest),) = cells({"id": -5, "name": text, "payload": None})
    assert (number, written[0], written.replace("'", ""), rest) == ("-5", "'", text, ["", ""])


def test_text_after_another_separator__begins_with_an_apostrophe() -> None:
    """A spreadsheet in German or French separates cells at semicolons, whatever is in quotes."""
    written = {"x;=1+1;y": "x;'=1+1;y", "a; @b": "a;' @b", "two\n=lines": "two\n'=lines", "a\t+1": "a\t'+1"}
    for text, expected in written.items():
        assert cells({"id": 1, "name": text})[0][1] == expected
    assert cells({"id": 1, "payload": {"a": ";=1"}})[0][3] == """{"a": ";'=1"}"""
    line = "".join(write_csv([[{"id": 1, "name": 'x";=1+1;"\r\n =2'}]], ("id", "name"))).split("\r\n", 1)[1]
    assert not [each for each in re.split(r"[;\t\r\n]", line) if each.lstrip().startswith("=")]


def test_long_text__is_written_in_one_pass() -> None:
    began = time.process_time()
    for text in (";" * 200_000, " " * 200_000, "\n" * 200_000, "; " * 100_000):
        "".join(write_csv([[{"id": 1, "name": text}]], COLUMNS))
    assert time.process_time() - began < 5


def test_other_text__is_unchanged() -> None:
    for text in ("plain", 'a "quoted", b', "two\nlines", "1-2", "ünï", "a; b", "a = b"):
        assert cells({"id": 1, "name": text})[0][1] == text


def test_times__are_iso_8601_and_payloads_json() -> None:
    rows = [{"id": 1, "at": MOMENT, "payload": {"a": "ü"}}, {"id": 2, "at": LATEST}, {"id": 3, "at": EARLIEST}]
    assert [each[2:] for each in cells(*rows)] == [
        ["2026-01-02T03:04:05+00:00", '{"a": "ü"}'],
        ["infinity", ""],
        ["'-infinity", ""],
    ]
    found = json.loads("".join(write_json([rows], COLUMNS)))
    assert found[0] == {"id": 1, "name": None, "at": "2026-01-02T03:04:05+00:00", "payload": {"a": "ü"}}
    assert found[1]["at"] == "infinity"


def test_json__has_an_object_on_each_line_and_is_an_array() -> None:
    text = "".join(write_json([[{"id": 1, "name": "\ud800"}], [], [{"id": 2}]], ("id", "name")))
    assert text.encode()
    assert text.splitlines()[1:3] == ['{"id": 1, "name": "\\ud800"},', '{"id": 2, "name": null}']
    assert json.loads(text)[1] == {"id": 2, "name": None}
    assert json.loads("".join(write_json([], ("id",)))) == []


def test_csv_without_rows__has_its_header() -> None:
    assert "".join(write_csv([], COLUMNS)) == "id,name,at,payload\r\n"
