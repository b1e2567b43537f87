"""Payloads of plain types, which are encoded without code of the project."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django_graphile_worker.payloads import MAX_DEPTH

_KEYS = frozenset({str, int, float, bool, type(None)})
_SCALARS = _KEYS | {date, timedelta, Decimal, UUID}
_TIMES = frozenset({datetime, time})
_CONTAINERS = frozenset({dict, list, tuple})
_ZONES = frozenset({type(None), timezone, ZoneInfo})


def are_plain(payloads: Collection[Any]) -> bool:
    """Return whether all parts of payloads are exactly of plain types: a subclass may have methods of its own.

    All payloads are examined together, one level after the other, because a call for each part would take longer than
    encoding it.
    """
    parts = payloads
    for _ in range(MAX_DEPTH):
        kinds = set(map(type, parts)) - _SCALARS
        if not kinds:
            return True
        if not kinds <= _CONTAINERS and not _has_plain_times(parts, kinds):
            return False
        children = _children([part for part in parts if type(part) in _CONTAINERS])
        if children is None:
            return False
        parts = children
    return False


def _has_plain_times(parts: Collection[Any], kinds: set[type]) -> bool:
    """Return whether all parts but times are containers or scalars, and the times have zones without own code."""
    return kinds <= _CONTAINERS | _TIMES and all(type(part.tzinfo) in _ZONES for part in parts if type(part) in _TIMES)


def _children(containers: list[Any]) -> list[Any] | None:
    """Return the parts of containers; None if a key of a dict is not of a plain type."""
    dicts = [part for part in containers if type(part) is dict]
    if not _KEYS.issuperset(map(type, chain.from_iterable(dicts))):
        return None
    others = (part for part in containers if type(part) is not dict)
    return [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(others)]
