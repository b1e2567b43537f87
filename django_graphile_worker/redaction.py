"""Hiding secrets: values whose keys look like it, at any depth, unless the user may see payloads."""

from __future__ import annotations

import re
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.payloads import RawPayload

HIDDEN = "••••••"
MOST_LEVELS = 200

# `name = ` and `"name": ` inside a text, and the value that follows. Possessive, and only from the beginning of
# a name: a text of any kind is read in one pass.
_NAME = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]++)["']?\s*+[=:]\s*+""")
_VALUE = re.compile(r""""[^"\n]*+"|'[^'\n]*+'|[^\s,;&)}\]]++""")
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
    while found := _NAME.search(text, done):
        name = found["name"]
        parts.append(text[done : found.end()])
        done = found.end()
        # The name of an exception is no key; what follows it may hold one: "ValueError: token=...".
        value = _VALUE.match(text, done) if is_secret(name) and not _EXCEPTION.search(name) else None
        if value:
            parts.append(HIDDEN)
            done = value.end()
    return "".join([*parts, text[done:]])
