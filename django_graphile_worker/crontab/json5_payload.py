"""Reads the payloads of items: JSON5 in a crontab line becomes plain JSON for the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import json5

from django_graphile_worker.crontab.errors import MistakeCollector, Position

# The parser of json5 takes up to 60 ms for every thousand characters.
MAX_JSON5_LENGTH = 20_000


class Json5Error(ValueError):
    """The text is not JSON5; ``offset`` is the position of the first character that does not fit."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        before = text[:offset]
        line, column = before.count("\n") + 1, offset - before.rfind("\n")
        super().__init__(f"{message} at line {line}, column {column}")
        self.offset = offset


def read_payload(text: str, collector: MistakeCollector, at: Position) -> dict[str, Any] | None:
    """Return the object of a JSON5 text; report mistakes to the collector."""
    if not text.endswith("}"):
        collector.add("a JSON5 object like {limit: 10} at the end of the line", text, at)
        return None
    try:
        payload = loads(text)
    except Json5Error as error:
        offset = min(error.offset, len(text) - 1)
        expected = "JSON5 (quote text, close every bracket)"
        if len(text) > MAX_JSON5_LENGTH:
            expected = f"JSON, or JSON5 of at most {MAX_JSON5_LENGTH:,} characters"
        collector.add(expected, text[offset:], at.shifted(offset))
        return None
    except RecursionError:
        collector.add("a payload that is nested less deeply", text[:20] + "…", at)
        return None
    try:
        return plain_payload(payload)
    except ValueError as error:
        collector.add(str(error), text, at)
        return None


def loads(text: str) -> Any:
    """Return the value of a text of JSON or JSON5; raise Json5Error, or RecursionError if it is nested too deeply."""
    try:
        return json.loads(text)
    except ValueError as error:
        if len(text) > MAX_JSON5_LENGTH:
            offset = error.pos if isinstance(error, json.JSONDecodeError) else 0
            message = f"No JSON, and too long for JSON5 (at most {MAX_JSON5_LENGTH:,} characters): error"
            raise Json5Error(message, text, offset) from None
    try:
        value, error_text, offset = json5.parse(text)
        if error_text is None:
            # A round trip through JSON: json5 leaves the two halves of an escaped surrogate pair apart.
            return json.loads(json.dumps(value))
    except ValueError as error:
        raise Json5Error(str(error), text, 0) from None
    if " at column " not in error_text:
        raise Json5Error(error_text, text, offset)
    found = text[offset : offset + 1]
    raise Json5Error(f"Unexpected {found!r}" if found else "Unexpected end of the text", text, offset)


def plain_payload(payload: object) -> dict[str, Any]:
    """Return the payload after a round trip through JSON; raise ValueError with what was expected."""
    if not isinstance(payload, Mapping):
        raise ValueError("an object (a dict) as payload")
    try:
        text = json.dumps(dict(payload), allow_nan=False, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a payload without half a surrogate pair, which PostgreSQL cannot store") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a payload that JSON can hold ({error})") from None
    if r"\u0000" in text.replace(r"\\", ""):
        raise ValueError(r"a payload without the character \u0000, which PostgreSQL cannot store")
    plain: dict[str, Any] = json.loads(text)
    return plain
