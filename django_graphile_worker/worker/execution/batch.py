"""Array payloads: one result for each item, and only what failed is tried again."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Sequence
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from typing import Any

from django_graphile_worker.exceptions import BatchFailure

_decoder = json.JSONDecoder()


async def gathered(results: Sequence[Any]) -> list[Any]:
    """Await what is awaitable, all at once; what it raises takes its place."""
    return list(await asyncio.gather(*map(_settled, results)))


async def _settled(result: Any) -> Any:
    try:
        while inspect.isawaitable(result):
            result = await result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return error
    except BaseException as error:
        return error
    return result


def remaining(payload_text: str, failure: BatchFailure) -> str | None:
    """The failed items as they were written; None when the text does not have one for each result."""
    items = _items(payload_text)
    if len(items) != failure.count:
        return None
    return "[" + ",".join(items[index] for index in failure.failures) + "]"


def _items(text: str) -> list[str]:
    items: list[str] = []
    position = _after_whitespace(text, 0)
    if text[position] != "[":
        return items
    position += 1
    while text[(position := _after_whitespace(text, position))] != "]":
        _, end = _decoder.raw_decode(text, position)
        items.append(text[position:end])
        position = _after_whitespace(text, end)
        if text[position] == ",":
            position += 1
    return items


def _after_whitespace(text: str, position: int) -> int:
    return int(WHITESPACE.match(text, position).end())
