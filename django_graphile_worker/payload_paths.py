"""The parts of a payload, and the paths to them, such as ``$.lines[2].price``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_PLAIN_KEY = r"[^\W\d]\w*"


class PayloadPart:
    """A part of a payload, and the path to it."""

    def __init__(self, value: Any, step: str = "$", parent: PayloadPart | None = None) -> None:
        self.value = value
        self.step = step
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1

    def ancestors(self) -> Iterator[PayloadPart]:
        part = self.parent
        while part is not None:
            yield part
            part = part.parent

    def path(self) -> str:
        steps = [self.step, *(part.step for part in self.ancestors())]
        return "".join(reversed(steps))

    def child(self, step: str, value: Any) -> PayloadPart:
        return PayloadPart(value, step, self)

    def children(self) -> list[PayloadPart]:
        if isinstance(self.value, dict):
            return [self.child(key_step(key), item) for key, item in self.value.items()]
        if isinstance(self.value, list | tuple):
            return [self.child(f"[{index}]", item) for index, item in enumerate(self.value)]
        return []


def key_step(key: Any) -> str:
    """Return the step to a key's value in a path: ``.name``, or ``["any text"]``."""
    text = key if isinstance(key, str) else json.dumps(key) if key is None or isinstance(key, bool) else str(key)
    return f".{text}" if re.fullmatch(_PLAIN_KEY, text) else f"[{json.dumps(text)}]"
