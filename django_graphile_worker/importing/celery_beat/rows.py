"""``BeatRow``: a periodic task of django-celery-beat with its schedule, as plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

KINDS = ("crontab", "interval", "clocked", "solar")


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatRow:
    """A row of ``PeriodicTask``. ``kind`` names its schedule, and ``schedule`` is the row of that."""

    name: str
    task: str
    kind: str = ""
    schedule: Mapping[str, Any] = field(default_factory=dict)
    args: str = "[]"
    kwargs: str = "{}"
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    headers: str = "{}"
    priority: int | None = None
    expires: datetime | None = None
    expire_seconds: int | None = None
    is_one_off: bool = False
    start_time: datetime | None = None
    is_enabled: bool = True
    last_run_at: datetime | None = None
    total_run_count: int = 0
    date_changed: datetime | None = None
    description: str = ""

    @property
    def positional(self) -> Any:
        return json.loads(self.args or "[]")

    @property
    def keywords(self) -> Any:
        return json.loads(self.kwargs or "{}")


def beat_row(row: Mapping[str, Any], schedules: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> BeatRow:
    """Return the row of ``PeriodicTask`` with its schedule; older versions of the package lack some columns."""
    kind = next((kind for kind in KINDS if row.get(f"{kind}_id") is not None), "")
    return BeatRow(
        name=row["name"],
        task=row["task"],
        kind=kind,
        schedule=schedules[kind].get(row[f"{kind}_id"], {}) if kind else {},
        args=row.get("args") or "[]",
        kwargs=row.get("kwargs") or "{}",
        queue=row.get("queue") or None,
        exchange=row.get("exchange") or None,
        routing_key=row.get("routing_key") or None,
        headers=row.get("headers") or "{}",
        priority=row.get("priority"),
        expires=as_time(row.get("expires")),
        expire_seconds=row.get("expire_seconds"),
        is_one_off=bool(row.get("one_off")),
        start_time=as_time(row.get("start_time")),
        is_enabled=bool(row["enabled"]),
        last_run_at=as_time(row.get("last_run_at")),
        total_run_count=row.get("total_run_count") or 0,
        date_changed=as_time(row.get("date_changed")),
        description=row.get("description") or "",
    )


def as_time(value: Any) -> datetime | None:
    """Return a time of any database: Django stores UTC where the database knows no time zones."""
    if value is None:
        return None
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return time if time.tzinfo else time.replace(tzinfo=UTC)
