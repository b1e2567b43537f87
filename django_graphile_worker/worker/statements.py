"""Which statements may change a session for good, told by their text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_LONGEST_REMEMBERED = 10_000
_COMMENT = r"--[^\n]*(?:\n|\Z)|/\*.*?\*/"
# Patterns are compiled with the first statement of a task: at every start they would take 2 ms.
_SESSION_STATEMENT = rf"""(?isx)
    (?:\A|;) (?:\s|\(|{_COMMENT})*
    (?: set \b (?! (?:\s|{_COMMENT})+ (?:local|constraints|transaction)\b)
      | reset\b | discard\b | listen\b | unlisten\b | load\b | do\b | call\b | declare\b
      | prepare \b (?! \s+ transaction\b) )
    """
_SESSION_EXPRESSION = r"(?i)set_config\s*\((?!(?:[^()']|'[^']*')*,\s*true\s*\))|advisory_lock|\btemp(?:orary)?\b"
_CUSTOM_SETTING = r"(?i)\b[a-z_][\w$]*\.[a-z_][\w$]*\b"
_MOST_CUSTOM_SETTINGS = 100


def custom_settings_in(statement: Any, parameters: Any) -> list[str]:
    """Names like app.tenant in a statement or its parameters: what it may have set."""
    values = parameters.values() if isinstance(parameters, dict) else parameters or ()
    texts = [_to_text(statement), *(value for value in values if isinstance(value, str) and len(value) < 200)]
    names = {name.lower() for text in texts for name in re.findall(_CUSTOM_SETTING, text)}
    return sorted(names)[:_MOST_CUSTOM_SETTINGS]


def may_change_session(statement: Any) -> bool:
    """Tell whether a session may differ after the statement; a query decides later whether it does."""
    text = _to_text(statement)
    if len(text) > _LONGEST_REMEMBERED:
        return _looks_like_it(text)
    return _remembered(text)


def _looks_like_it(text: str) -> bool:
    # The queue's own statements are known to behave.
    if text.startswith("/* gw:"):
        return False
    return bool(re.search(_SESSION_STATEMENT, text) or re.search(_SESSION_EXPRESSION, text))


_remembered = lru_cache(maxsize=1_000)(_looks_like_it)


def _to_text(statement: Any) -> str:
    if isinstance(statement, str):
        return statement
    if isinstance(statement, bytes):
        return statement.decode("utf-8", "replace")
    try:
        return str(statement.as_string(None))
    except Exception:
        return str(statement)
