"""``Definition``: when a schedule is due, without what it runs."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.zones import load_zone


@dataclass(frozen=True, slots=True)
class Definition:
    """When a schedule is due: exactly one of ``cron``, ``interval`` and ``run_at`` is given, and all times are aware.

    ``anchor_at`` is the time from which an interval is counted. A schedule that is not saved yet has none: it is
    counted from ``starts_at``, or from the time after which its times are asked for.
    """

    cron: str | None = None
    interval: timedelta | None = None
    run_at: datetime | None = None
    time_zone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    anchor_at: datetime | None = None
    # The times before changes, oldest first, as far as their ticks were not handled; then, the time after which the
    # times of this definition count.
    former: tuple[Former, ...] = ()
    counts_from: datetime | None = None

    @classmethod
    def of(cls, row: object) -> Definition:
        """Return the definition of anything that has attributes of the same names, such as a ``Schedule``."""
        values: dict[str, Any] = {name: getattr(row, name) for name in _NAMES}
        return cls(**values)

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone of the cron line; None is UTC, whose times are computed in half the time."""
        return zone_of(self.time_zone)


@dataclass(frozen=True, slots=True)
class Former:
    """The times that a schedule had before a change: they count for ticks with ``after < tick <= until``."""

    definition: Definition
    after: datetime
    until: datetime


_NAMES = tuple(each.name for each in fields(Definition) if each.name not in {"former", "counts_from"})


# ZoneInfo itself keeps only eight zones, and reads the file of any other zone again.
@functools.lru_cache(maxsize=1_000)
def zone_of(key: str) -> ZoneInfo | None:
    """Return a time zone, or None for UTC; raise ValueError with what was expected."""
    return None if key == "UTC" else load_zone(key)
