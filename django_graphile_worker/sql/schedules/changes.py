"""Settings of a session that the triggers of schedules read: who makes a change, and the time of a test."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django_graphile_worker.sql.search_path import qualified

# The end of a pause that has no end: the last time of the year 9999 that any time zone has.
FOREVER = datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)

CHANGED_BY = """/* gw:schedules-changed-by */
select before.name, set_config('graphile_worker.changed_by', %(by)s::text, true)
from (select coalesce(current_setting('graphile_worker.changed_by', true), '') as name offset 0) as before"""
NOW = "/* gw:schedules-now */ select set_config('graphile_worker.now', %(now)s::text, false)"


def set_changed_by(cursor: Any, by: str) -> str:
    """Note who makes the changes that follow, until the end of the transaction; return who it was before."""
    cursor.execute(qualified(CHANGED_BY), {"by": by})
    return str(cursor.fetchone()[0])


def set_now(cursor: Any, now: datetime | None) -> None:
    """Have the triggers use this time, in this session; None for the time of the database."""
    cursor.execute(qualified(NOW), {"now": "" if now is None else now.isoformat()})
