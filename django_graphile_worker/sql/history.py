"""The history of attempts: its outcomes, and the partitions of its table, one for each day in UTC.

The functions that end claims write the rows. Only the owner of the table may make, index and drop partitions, so
functions of the schema do it, with the rights of the owner.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Any

from django_graphile_worker.sql.statements import statement

# Partitions are made for today and this many days ahead: if no worker can make them for a day, nothing is missed.
DAYS_AHEAD = 2
# How many rows of the default partition one statement deletes.
MOST_DELETED = 5000


class HistoryOutcome(IntEnum):
    """How an attempt ended."""

    SUCCEEDED = 1
    FAILED = 2
    PERMANENTLY_FAILED = 3
    INTERRUPTED = 4
    LOST = 5
    REMOVED_BY_OPERATOR = 6
    FAILED_BY_OPERATOR = 7
    # The error says who cancelled the job, and why.
    CANCELLED = 8
    # The job was not started in time, and never ran.
    EXPIRED = 9


MAKE_PARTITIONS = """/* gw:make-history */
select :SCHEMA._private_make_history_partitions(%(days)s::int, %(now)s::timestamptz)"""

DROP_OLD = """/* gw:drop-history */
select :SCHEMA._private_drop_history(
    coalesce(%(now)s::timestamptz, now()) - %(seconds)s::float8 * interval '1 second', %(most)s::int)"""

INDEX_DAYS = "/* gw:index-history */ select :SCHEMA._private_index_history(%(now)s::timestamptz)"


def make_partitions(cursor: Any, *, schema: str, now: datetime | None = None) -> int:
    """Make the partitions of today and of the next days; return how many were missing."""
    cursor.execute(statement(MAKE_PARTITIONS, schema), {"days": DAYS_AHEAD, "now": now})
    return int(cursor.fetchone()[0])


def drop_old(cursor: Any, *, schema: str, older_than: float, now: datetime | None = None) -> bool:
    """Do one step of dropping the days that ended this many seconds ago; return True if there may be another."""
    cursor.execute(statement(DROP_OLD, schema), {"seconds": older_than, "most": MOST_DELETED, "now": now})
    return bool(cursor.fetchone()[0])


def index_days(cursor: Any, *, schema: str, now: datetime | None = None) -> bool:
    """Do one step of indexing the days that are over; return True if there may be another."""
    cursor.execute(statement(INDEX_DAYS, schema), {"now": now})
    return bool(cursor.fetchone()[0])
