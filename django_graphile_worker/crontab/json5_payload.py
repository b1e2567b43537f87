"""Reads the payloads of items: JSON5 in a crontab line becomes plain JSON for the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django_graphile_worker.crontab.errors import MistakeCollector, Position
from django_graphile_worker.crontab.json5 import Json5Error, loads


def read_payload(text: str, collector: MistakeCollector, at: Position) -> dict[str, Any] | None:
    """Return the object of a JSON5 text; report mistakes to the collector."""
    if not text.endswith("}"):
        collector.add("a JSON5 object like {limit: 10} at the end of the line", text, at)
        return None
    try:
        payload = _loads(text)
    except Json5Error as error:
        offset = min(error.offset, len(text) - 1)
        collector.add("JSON5 (quote text, close every bracket)", text[offset:], at.shifted(offset))
        return None
    except RecursionError:
        collector.add("a payload that is nested less deeply", text[:20] + "…", at)
        return None
    try:
        return plain_payload(payload)
    except ValueError as error:
        collector.add(str(error), text, at)
        return None


def _loads(text: str) -> Any:
    """Return the value of a JSON5 text. Try JSON first: it is valid JSON5, and its decoder, written in C, is faster."""
    try:
        return json.loads(text)
    except ValueError:
        return loads(text)


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
