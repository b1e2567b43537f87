"""Ticks that another session may be firing, or may be about to give up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django_graphile_worker.crontab import CronItem

# A session that keeps the row of an item longer than this is not a worker that fires a tick.
GIVEN_UP_AFTER = timedelta(hours=1)


class UndecidedTicks:
    """The ticks whose item is locked by another session: they are tried again until they are known to be fired.

    An item's ticks are fired in order: a later tick that was fired would hide an earlier one for ever.
    """

    def __init__(self) -> None:
        self._items: dict[datetime, dict[str, CronItem]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return any(name in items for items in self._items.values())

    def __iter__(self) -> Iterator[tuple[datetime, list[CronItem]]]:
        """Each tick with its items, the earliest first; an item is there once, with its earliest tick."""
        seen: set[str] = set()
        for tick in sorted(self._items):
            yield tick, [item for name, item in self._items[tick].items() if name not in seen]
            seen.update(self._items.get(tick, ()))

    def add(self, tick: datetime, items: Iterable[CronItem]) -> None:
        for item in items:
            self._items.setdefault(tick, {})[item.name] = item

    def discard(self, tick: datetime, items: Iterable[CronItem]) -> None:
        left = self._items.get(tick, {})
        for item in items:
            left.pop(item.name, None)
        if not left:
            self._items.pop(tick, None)

    def begin(self, minute: datetime) -> None:
        """A new minute: items that make up what they missed need no list of it, and others wait for an hour."""
        for tick in list(self._items):
            is_old = minute - tick > GIVEN_UP_AFTER
            self.discard(tick, [item for item in self._items[tick].values() if item.period or is_old])
