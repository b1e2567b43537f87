"""Renders a payload as an HTML tree whose branches can be folded without a script."""

from __future__ import annotations

import json
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import ngettext

# Beyond these limits a branch is shown as plain text.
MOST_LEVELS = 30
MOST_NODES = 2_000
OPEN_LEVELS = 3
LONGEST_LEAF = 5_000


class PayloadTree:
    """The renderer of one payload, which counts the nodes that it has rendered."""

    def __init__(self) -> None:
        self._nodes = 0

    def render(self, value: Any, level: int = 0, key: SafeString | str = "") -> SafeString:
        """Render a value with its key in front of it. The key is folded together with the value."""
        self._nodes += 1
        if isinstance(value, dict | list) and value:
            if level >= MOST_LEVELS or self._nodes > MOST_NODES:
                return _leaf("text", to_json(value), key)
            return self._branch(value, level, key)
        if isinstance(value, str):
            return _leaf("string", to_json(value), key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return _leaf("number" if is_number else "word", to_json(value), key)

    def _branch(self, value: dict[str, Any] | list[Any], level: int, own_key: SafeString | str) -> SafeString:
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        items = format_html_join(
            "",
            "<li>{}</li>",
            ((self.render(item, level + 1, _key(key)),) for key, item in pairs),
        )
        number = ngettext("%(count)s item", "%(count)s items", len(pairs)) % {"count": len(pairs)}
        return format_html(
            '<details class="gw-json"{}><summary>{}{} <span class="gw-quiet">{}</span></summary><ul>{}</ul></details>',
            " open" if level < OPEN_LEVELS and len(pairs) <= 100 else "",
            own_key,
            "{…}" if isinstance(value, dict) else "[…]",
            number,
            items,
        )


def _key(key: str | int) -> SafeString:
    return format_html('<span class="gw-json-key">{}</span> ', to_json(key) if isinstance(key, str) else key)


def _leaf(kind: str, text: str, key: SafeString | str) -> SafeString:
    shown = text if len(text) <= LONGEST_LEAF else f"{text[:LONGEST_LEAF]}…"
    return format_html('{}<span class="gw-json-{}">{}</span>', key, kind, shown)


def to_json(value: Any, indent: int | None = None) -> str:
    """Return JSON that UTF-8 can encode: write half a surrogate pair, which JSON allows, as an escape."""
    try:
        text = json.dumps(value, ensure_ascii=False, indent=indent)
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    except (ValueError, RecursionError):
        return "…"
    return text
