"""``CronItem``: a recurring task, that is the times at which it is due and the job that it adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.time_phrases import parse_time_phrase
from django_graphile_worker.crontab.zones import load_zone
from django_graphile_worker.job_options import JobKeyModeOption

Match = str | Callable[[datetime], bool]


@dataclass(frozen=True, slots=True)
class CronItem:
    """A recurring task.

    ``match`` is a pattern (``"0 4 * * *"``, ``"@daily"``) or a callable that takes
    the minute as an aware datetime, in the item's time zone, and returns whether
    the item is due. ``identifier`` is the permanent name of the item (default:
    the task's identifier). ``backfill_period`` is how far back missed times are
    backfilled (a timedelta, seconds, or a phrase like ``"2d"``).

    The constructor checks nothing: ``parse_cron_items`` checks items, and raises one
    error with every mistake in them.
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
    job_key_mode: JobKeyModeOption | None = None
    flags: Iterable[str] | None = None
    time_zone: str | ZoneInfo | None = None

    def __str__(self) -> str:
        """Return the name and the pattern, for lists and logs."""
        if isinstance(self.match, str):
            return f"{self.name} ({self.match})"
        return f"{self.name} ({getattr(self.match, '__qualname__', type(self.match).__qualname__)})"

    @property
    def name(self) -> str:
        """The identifier; by default the task's."""
        return self.task if self.identifier is None else self.identifier

    @property
    def period(self) -> timedelta:
        """``backfill_period`` as a timedelta."""
        if isinstance(self.backfill_period, str):
            return parse_time_phrase(self.backfill_period)
        if isinstance(self.backfill_period, timedelta):
            return self.backfill_period
        return timedelta(seconds=self.backfill_period)

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone that ``match`` is written in; None is UTC."""
        return load_zone(self.time_zone) if isinstance(self.time_zone, str) else self.time_zone
