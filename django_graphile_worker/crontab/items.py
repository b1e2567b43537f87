"""A cron item: what to add to the queue, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.durations import parse_phrase
from django_graphile_worker.crontab.zones import load_zone
from django_graphile_worker.jobs import JobKeyMode

Match = str | Callable[[datetime], bool]


@dataclass(frozen=True, slots=True)
class CronItem:
    """One recurring task.

    ``match`` is a pattern (``"0 4 * * *"``, ``"@daily"``) or a callable that is
    given the minute as an aware datetime, in the item's time zone, and says
    whether the item is due. ``identifier`` names the item for ever (default:
    the task's identifier); ``backfill_period`` is how far back missed times are
    made up (a timedelta, seconds, or a phrase like ``"2d"``).

    Making an item never fails: ``parse_cron_items`` checks them, and tells
    every mistake of every item at once.
    """

    task: str
    match: Match
    payload: Mapping[str, Any] | None = field(default=None, hash=False)
    identifier: str | None = None
    backfill_period: timedelta | float | str = timedelta(0)
    max_attempts: int | None = None
    queue_name: str | None = None
    priority: int | None = None
    job_key: str | None = None
    job_key_mode: JobKeyMode | str | None = None
    flags: Iterable[str] | None = None
    time_zone: str | ZoneInfo | None = None

    def __str__(self) -> str:
        """Short, for lists and logs: the name and the pattern."""
        if isinstance(self.match, str):
            return f"{self.name} ({self.match})"
        return f"{self.name} ({getattr(self.match, '__qualname__', type(self.match).__qualname__)})"

    @property
    def name(self) -> str:
        """The identifier, which is the task's unless the item says otherwise."""
        return self.task if self.identifier is None else self.identifier

    @property
    def period(self) -> timedelta:
        """``backfill_period`` as a timedelta."""
        if isinstance(self.backfill_period, str):
            return parse_phrase(self.backfill_period)
        if isinstance(self.backfill_period, timedelta):
            return self.backfill_period
        return timedelta(seconds=self.backfill_period)

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone that ``match`` is written in; None is UTC."""
        return load_zone(self.time_zone) if isinstance(self.time_zone, str) else self.time_zone
