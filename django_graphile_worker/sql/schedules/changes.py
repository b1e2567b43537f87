"""Settings of a session that the triggers of schedules read: who makes a change, and the time of a test."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_graphile_worker.sql.search_path import qualified

CHANGED_BY = "/* gw:schedules:changed-by */ select set_config('graphile_worker.changed_by', %(by)s::text, %(local)s)"
NOW = "/* gw:schedules:set-now */ select set_config('graphile_worker.now', %(now)s::text, false)"
WHO = "/* gw:schedules:who */ select coalesce(current_setting('graphile_worker.changed_by', true), '')"


def set_changed_by(cursor: Any, by: str, *, is_local: bool) -> str:
    """Note who makes the changes that follow, until the end of the transaction or session; return who it was before."""
    cursor.execute(qualified(WHO))
    before = str(cursor.fetchone()[0])
    cursor.execute(qualified(CHANGED_BY), {"by": by, "local": is_local})
    return before


def set_now(cursor: Any, now: datetime | None) -> None:
    """Have the triggers use this time, in this session; None for the time of the database."""
    cursor.execute(qualified(NOW), {"now": "" if now is None else now.isoformat()})
