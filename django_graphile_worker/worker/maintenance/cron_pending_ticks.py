"""Undecided ticks: another session may be firing them, and may still roll back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django_graphile_worker.crontab import CronItem

# A session that locks the row of an item for longer than this is not a worker that fires a tick.
GIVEN_UP_AFTER = timedelta(hours=1)


class UndecidedTicks:
    """The ticks whose item is locked by another session. They are tried again until they are known to be fired.

    The ticks of an item are fired in order: after a later tick was fired, an earlier tick is never fired.
    """

    def __init__(self) -> None:
        self._items: dict[datetime, dict[str, CronItem]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return any(name in items for items in self._items.values())

    def __iter__(self) -> Iterator[tuple[datetime, list[CronItem]]]:
        """Yield each tick with its items, the earliest first; each item once, with its earliest tick."""
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
        """Begin a new minute: drop the ticks of items with a backfill period, and ticks that are an hour old.

        The backlog of an item with a backfill period finds its missed ticks in the database.
        """
        for tick in list(self._items):
            is_old = minute - tick > GIVEN_UP_AFTER
            self.discard(tick, [item for item in self._items[tick].values() if item.period or is_old])
