"""Ticks of items of the crontab, fired by the statement of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.recurring import job_of_item
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.sql.schedules.firing import Decision, DueItem, fire


def fire_ticks(
    cursor: Any,
    items: Sequence[CronItem],
    *ticks: datetime,
    schema: str,
    late_before: datetime | None = None,
    **options: Any,
) -> dict[str, list[int]]:
    """Fire these ticks of each item, which becomes known with the first; return the ids of the jobs."""
    names = [item.name for item in items]
    if missing := set(names) - set(from_code.known_crontabs(cursor, names, schema=schema)):
        from_code.register(cursor, missing, schema=schema, since=ticks[0])
    decisions = []
    for item in items:
        jobs = [job_of_item(item, at=at, is_late=late_before is not None and at < late_before) for at in ticks]
        decisions.append(Decision(due=DueItem(item, ticks[0], ticks[0], None), jobs=tuple(jobs), next_at=None))
    fired = fire(cursor, decisions, schema=schema, **options)
    return {item.name: fired[item.name].job_ids for item in items if item.name in fired}
