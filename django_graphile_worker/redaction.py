"""Hides secrets: the values of keys that match the setting REDACT, in payloads at any depth and in texts."""

from __future__ import annotations

import re
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.payloads import RawPayload

HIDDEN = "••••••"
MAX_LEVELS = 200
# How many characters before `)=(` may be names of columns.
LONGEST_COLUMNS = 2_000

# The characters between a name and its value inside a text. They are rare in the text of an error, so that searching
# for them and then reading the name backwards is faster than matching every word.
_SEPARATOR = re.compile(r"[=:]++>?")
_NAME_CHARACTERS = frozenset("_.-")
# Characters that may end a name: "token", {\"token\": ...} inside a string, user[token]; (token)=(...) of PostgreSQL.
_CLOSING = frozenset("\"'\\]")
_CLOSING_BEFORE_EQUALS = _CLOSING | {")"}
# Possessive quantifiers: any text is read in one pass. A text that was cut may lack the end of a string.
_SPACE = re.compile(r"\s*+")
_STRINGS = r""""(?:[^"\\\n]|\\.)*+"?+|'(?:[^'\\\n]|\\.)*+'?+"""
_VALUE = re.compile(
    r"""(?:(?:bearer|basic|digest|token|negotiate)[ \t]++)?+"""
    rf"""(?:(?:[bru]{{1,2}}(?=["']))?+(?:{_STRINGS})++|\\"[^"\n]*+"|[^\s,;&)}}\]]++)""",
    re.IGNORECASE,
)
# A list, a dictionary, a tuple, or the call of a class: all of it is the value.
_GROUP = re.compile(r"(?:[^\W\d][\w.]*+)?+[\[({]")
# Inside a group: strings, brackets, and the beginning of a line of a traceback, where a group that was cut has ended.
_PARTS_OF_GROUP = re.compile(rf"""{_STRINGS}|[\[({{\])}}]|\n(?=  File "|[A-Za-z_])""")
_EXCEPTION = re.compile(r"(?:Error|Exception|Warning|Failure|Interrupt)$")
# user:password@host in a URL, or https://token@host.
_LOGIN = re.compile(r"(?P<before>https?://(?=[^\s:/@]*+@)|://[^\s:/@]*+:)[^\s/]+(?=@)")
_PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z]++ ){0,3}?PRIVATE KEY.*?(?:-----END [A-Z ]*+-----|\Z)", re.DOTALL)


def is_secret(key: object) -> bool:
    """Return whether the value of a key must be hidden."""
    return any(pattern.search(str(key)) for pattern in conf.current().redact)


def redact(value: Any, level: int = 0) -> Any:
    """Return the value with everything below a secret key hidden."""
    if isinstance(value, RawPayload) or level > MAX_LEVELS:
        return HIDDEN
    if isinstance(value, dict):
        return {key: HIDDEN if is_secret(key) else redact(item, level + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [redact(item, level + 1) for item in value]
    return value


def redact_text(text: str) -> str:
    """Return a text with each value of a ``secret=value`` hidden; the name of an exception does not count as a key."""
    text = _PRIVATE_KEY.sub(HIDDEN, _LOGIN.sub(rf"\g<before>{HIDDEN}", text))
    parts: list[str] = []
    done = kept = 0
    for found in _SEPARATOR.finditer(text):
        if found.start() < done:
            continue
        name, start = _name_before(text, found.start(), done), _SPACE.match(text, found.end()).end()  # type: ignore[union-attr]
        if not name:
            continue
        done = start
        # The name of an exception is not a key, but the text after it may have one: "ValueError: token=...".
        if is_secret(name) and not _EXCEPTION.search(name):
            end = _end_of_value(text, start)
            if end > start:
                parts += [text[kept:start], HIDDEN]
                done = kept = end
    return "".join([*parts, text[kept:]])


def _end_of_value(text: str, start: int) -> int:
    """Return where the value that begins here ends."""
    group = _GROUP.match(text, start)
    if group is None:
        value = _VALUE.match(text, start)
        return value.end() if value else start
    depth = 1
    for part in _PARTS_OF_GROUP.finditer(text, group.end()):
        if part[0] == "\n":
            return part.start()
        depth += {"[": 1, "(": 1, "{": 1, "]": -1, ")": -1, "}": -1}.get(part[0], 0)
        if depth == 0:
            return part.end()
    return len(text)


def _name_before(text: str, separator: int, start: int) -> str:
    """Return the word that ends at a separator, or the columns of PostgreSQL: ``(token, tenant)=(...)``."""
    if separator and text.startswith(")=(", separator - 1):
        return _columns_before(text, separator)
    return _word_before(text, separator, start)


def _columns_before(text: str, separator: int) -> str:
    """Return the text in the parentheses that end at a separator."""
    depth = 0
    for place in range(separator - 1, max(separator - LONGEST_COLUMNS, 0) - 1, -1):
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            return text[place:separator]
    return text[max(separator - LONGEST_COLUMNS, 0) : separator]


def _word_before(text: str, separator: int, start: int) -> str:
    """Return the word, in quotes or not, that ends at a separator; empty if there is none."""
    end = separator
    while end > start and text[end - 1].isspace():
        end -= 1
    closing = _CLOSING_BEFORE_EQUALS if text.startswith("=", separator) else _CLOSING
    while end > start and text[end - 1] in closing:
        end -= 1
    begin = end
    while begin > start and (text[begin - 1].isalnum() or text[begin - 1] in _NAME_CHARACTERS):
        begin -= 1
    return text[begin:end]
