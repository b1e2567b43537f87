"""The beginning of a payload, as a list shows it: short, and with the values of secret keys hidden.

The text may end anywhere, so it is read token by token and never decoded as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from django_graphile_worker.redaction import HIDDEN, is_secret

# How many characters a list shows.
LONGEST = 80

# What schedules add to the payload of each job: the time that was due. The list shows when the job runs.
_OF_SCHEDULES = re.compile(r',\s*"_cron":\s*\{[^{}]*\}|"_cron":\s*\{[^{}]*\}\s*,?\s*')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?$)|[{}\[\],:]|[^\s{}\[\],:"]++')


def payload_preview(text: str, longest: int = LONGEST) -> str:
    """Return the first characters of a JSON text without line breaks, with HIDDEN for each value of a secret key."""
    shown = ""
    for part in _redacted(_OF_SCHEDULES.sub("", text)):
        shown += part
        if len(shown) > longest:
            return f"{shown[:longest]}…"
    return shown


def _redacted(text: str) -> Iterator[str]:
    """Yield the parts of a JSON text, with the values of secret keys hidden."""
    # "{" for each open object, "[" for each open array.
    parents: list[str] = []
    is_key = False
    # The number of open parents around a secret value; its tokens are skipped.
    hidden_level: int | None = None
    key = ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        is_inside = hidden_level is not None and len(parents) > hidden_level
        is_end = token in ",}]" and not is_inside
        if hidden_level is not None and is_end:
            hidden_level = None
        is_shown = hidden_level is None
        if token in "{[":
            parents.append(token)
        elif token in "}]" and parents:
            parents.pop()
        if is_shown:
            yield _shown(token)
        if token == ":" and is_shown and is_secret(_text(key)):
            hidden_level = len(parents)
            yield HIDDEN
        if is_key and token[0] == '"':
            key = token
        is_key = token == "{" or (token == "," and parents[-1:] == ["{"])


def _shown(token: str) -> str:
    if token[0] == '"':
        return json.dumps(_text(token), ensure_ascii=False) if token[-1:] == '"' and len(token) > 1 else token
    return f"{token} " if token in ",:" else token


def _text(token: str) -> str:
    """Return what a JSON string stands for; a string that cannot be decoded as it is written."""
    try:
        return str(json.loads(token, strict=False)).encode("utf-8", "replace").decode()
    except ValueError:
        return token.strip('"')
