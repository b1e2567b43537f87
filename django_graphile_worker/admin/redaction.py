"""Hiding secrets: values whose keys look like it, at any depth, unless the user may see payloads."""

from __future__ import annotations

import re
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.payloads import RawPayload

HIDDEN = "••••••"
MOST_LEVELS = 200

# `name = value` and `"name": value` inside a text.
# Possessive, and only from the beginning of a name: a text of any kind is read in one pass.
_PAIR = re.compile(
    r"""(?<![\w.-])(?P<name>[\w.-]++)(?P<between>["']?\s*+[=:]\s*+)(?P<value>"[^"\n]*+"|'[^'\n]*+'|[^\s,;&)}\]]++)""",
)
_EXCEPTION = re.compile(r"(?:Error|Exception|Warning|Failure|Interrupt)$")
# user:password@host in an address.
_LOGIN = re.compile(r"(?P<before>://[^\s:/@]*+:)[^\s@/]++(?=@)")


def is_secret(key: object) -> bool:
    """Tell whether a key's value must not be seen."""
    return any(pattern.search(str(key)) for pattern in conf.current().redact)


def redact(value: Any, level: int = 0) -> Any:
    """The value with everything under a secret key hidden."""
    if isinstance(value, RawPayload) or level > MOST_LEVELS:
        return HIDDEN
    if isinstance(value, dict):
        return {key: HIDDEN if is_secret(key) else redact(item, level + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [redact(item, level + 1) for item in value]
    return value


def redact_text(text: str) -> str:
    """A text with what looks like `secret=value` hidden; the names of exceptions are no keys."""
    text = _LOGIN.sub(rf"\g<before>{HIDDEN}", text)
    parts: list[str] = []
    done = 0
    while found := _PAIR.search(text, done):
        name = found["name"]
        is_hidden = is_secret(name) and not _EXCEPTION.search(name)
        parts += [text[done : found.start("value")], HIDDEN if is_hidden else ""]
        # What belongs to a harmless name may hold another pair: "ValueError: token=...".
        done = found.end() if is_hidden else found.start("value")
    return "".join([*parts, text[done:]])
