"""Which statements may change a session beyond their transaction, found in their text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from django_graphile_worker.frozen import Frozen

_MAX_CACHED_LENGTH = 10_000
_COMMENT = r"--[^\n]*(?:\n|\Z)|/\*.*?\*/"
# Patterns are compiled with the first statement of a task: compiled here, they would take 2 ms of a worker's start.
_SESSION_STATEMENT = rf"""(?isx)
    (?:\A|;) (?:\s|\(|{_COMMENT})*
    (?: set \b (?! (?:\s|{_COMMENT})+ (?:local|constraints|transaction)\b)
      | reset\b | discard\b | listen\b | unlisten\b | load\b | do\b | call\b | declare\b
      | prepare \b (?! \s+ transaction\b) )
    """
_SESSION_EXPRESSION = r"(?i)set_config\s*\((?!(?:[^()']|'[^']*')*,\s*true\s*\))|advisory_lock|\btemp(?:orary)?\b"
# In the body of a function, statements also begin after these words, and `execute` runs a text that is built at run
# time.
_BODY_STATEMENT = rf"""(?isx)
    (?:\A|;|\b(?:begin|then|else|loop)\b) (?:\s|{_COMMENT})*
    (?: set \b (?! (?:\s|{_COMMENT})+ (?:local|constraints|transaction)\b)
      | reset\b | discard\b | listen\b | unlisten\b | load\b | do\b | call\b | prepare\b | execute\b )
    """
_CUSTOM_SETTING = r"(?i)\b[a-z_][\w$]*\.[a-z_][\w$]*\b"
_MAX_CUSTOM_SETTINGS = 100
_CALL = r"""(?i)\b([a-z_][\w$]*)"?\s*\("""
_WRITE = r"(?i)\b(?:insert|update|delete|merge|copy)\b"
# Names before a parenthesis in usual statements of the ORM. Other names are looked up in the database, once a minute.
_HARMLESS_CALLS = frozenset(
    re.split(
        " ",
        "all and any array as avg case cast coalesce count current_timestamp date_trunc else exists extract filter "
        "from greatest in interval least length lower max min not now nullif on or over row select sum then trim "
        "union upper using values when where",
    )
)


def custom_settings_in(statement: Any, parameters: Any) -> list[str]:
    """Return names like app.tenant in a statement or its parameters: the settings that it may have changed."""
    values = parameters.values() if isinstance(parameters, dict) else parameters or ()
    texts = [_to_text(statement), *(value for value in values if isinstance(value, str) and len(value) < 200)]
    names = {name.lower() for text in texts for name in re.findall(_CUSTOM_SETTING, text)}
    return sorted(names)[:_MAX_CUSTOM_SETTINGS]


class Traits(Frozen):
    """What the text of a statement shows about its effect on the session."""

    # The session may differ after the statement; a query after the job decides whether it does.
    may_change_session: bool
    # The called functions that are not known to be harmless: a function may change the session, too.
    functions: frozenset[str]
    # A statement that writes may call triggers.
    is_write: bool


HARMLESS = Traits(may_change_session=False, functions=frozenset(), is_write=False)


def traits_of(statement: Any) -> Traits:
    """Return the traits of a statement, for most statements from a cache."""
    text = _to_text(statement)
    if len(text) > _MAX_CACHED_LENGTH:
        return _read(text)
    return _read_cached(text)


def traits_of_body(language: str, text: str) -> Traits:
    """Return the traits of a function. If its text cannot be read, or builds its statements, it may do anything."""
    is_readable = language in {"sql", "plpgsql"} and bool(text.strip())
    may_change = not is_readable or re.search(_BODY_STATEMENT, text) or re.search(_SESSION_EXPRESSION, text)
    return Traits(
        may_change_session=bool(may_change),
        functions=frozenset(name.lower() for name in re.findall(_CALL, text)) - _HARMLESS_CALLS,
        is_write=re.search(_WRITE, text) is not None,
    )


def _read(text: str) -> Traits:
    # The statements of this package change nothing.
    if text.startswith("/* gw:"):
        return HARMLESS
    found = Traits(
        may_change_session=bool(re.search(_SESSION_STATEMENT, text) or re.search(_SESSION_EXPRESSION, text)),
        functions=frozenset(name.lower() for name in re.findall(_CALL, text)) - _HARMLESS_CALLS,
        is_write=re.search(_WRITE, text) is not None,
    )
    return HARMLESS if found == HARMLESS else found


_read_cached = lru_cache(maxsize=1_000)(_read)


def _to_text(statement: Any) -> str:
    if isinstance(statement, str):
        return statement
    if isinstance(statement, bytes):
        return statement.decode("utf-8", "replace")
    try:
        return str(statement.as_string(None))
    except Exception:
        return str(statement)
