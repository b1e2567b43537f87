"""Recurring tasks that are late: a tick was due some minutes ago, and no worker has fired it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from django_graphile_worker.crontab import CronItem, occurrences
from django_graphile_worker.sql.schedules.from_code import KnownCrontab

# Workers fire a tick within seconds.
GRACE = timedelta(minutes=2)
# The overview checks at most this many items.
MAX_CHECKED = 1_000
MOMENT = timedelta(microseconds=1)


def due_since(item: CronItem, known: KnownCrontab | None, now: datetime) -> datetime | None:
    """Return the first tick of the item that was not fired in time; None for an item that is on time.

    An item that a function of the project decides about is never late: the function would be called for each minute.
    """
    if known is None or known.is_paused or not isinstance(item.match, str):
        return None
    # A new item, and an item that was resumed, has no ticks before it became known.
    before_it_was_known = known.known_since - MOMENT
    after = max(known.last_execution or before_it_was_known, before_it_was_known)
    until = _aware(now) - GRACE
    return next(iter(occurrences(item, after, until)), None) if after < until else None


def late_items(
    items: Iterable[CronItem], known: Mapping[str, KnownCrontab], now: datetime
) -> list[tuple[CronItem, float]]:
    """Return the late items, the longest late first, each with the seconds since it was due."""
    found = [(item, due_since(item, known.get(item.name), now)) for item in list(items)[:MAX_CHECKED]]
    late = [(item, (_aware(now) - due).total_seconds()) for item, due in found if due is not None]
    return sorted(late, key=lambda pair: -pair[1])


def _aware(now: datetime) -> datetime:
    return timezone.make_aware(now).astimezone(UTC) if timezone.is_naive(now) else now
