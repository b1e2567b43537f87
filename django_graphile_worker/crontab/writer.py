"""Writes items as crontab text: ``parse_crontab(format_item(item))`` returns the item."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.time_phrases import format_time_phrase

# Characters that need no escape in options, in addition to letters, digits and '_.-~'.
_PLAIN = "/:,"


def format_item(item: CronItem) -> str:
    """Write an item as one line of a crontab; raise ValueError if its ``match`` is a callable."""
    if not isinstance(item.match, str):
        raise ValueError(f"expected a crontab item with a pattern, got an item with a callable: {item.match!r}")
    words = [item.match, item.task]
    options = "&".join(f"{key}={quote(value, safe=_PLAIN)}" for key, value in _options(item))
    if options:
        words.append(f"?{options}")
    if item.payload is not None:
        words.append(json.dumps(dict(item.payload), ensure_ascii=False))
    return " ".join(words)


def _options(item: CronItem) -> Iterator[tuple[str, str]]:
    if item.name != item.task:
        yield "id", item.name
    if item.period:
        yield "fill", format_time_phrase(item.period)
    plain = {
        "max": item.max_attempts,
        "queue": item.queue_name,
        "jobKey": item.job_key,
        "jobKeyMode": item.job_key_mode,
        "priority": item.priority,
        "tz": item.zone and item.zone.key,
    }
    yield from ((key, str(value)) for key, value in plain.items() if value is not None)
    if item.flags:
        yield "flags", ",".join(item.flags)
