"""Results that tasks keep: what their status means, and how they are deleted when they have expired.

The functions that end claims write the results, and for jobs that a call of the API ended the statements with
``sql.result_keeping.RECORD_OPERATOR``.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

from django_graphile_worker.sql.schema import statement

# How many results one statement deletes: it takes some milliseconds.
MOST_PRUNED = 2000
# The channel of the notifications that a job has ended for which a session waits. The payload is JSON: {"schema": the
# worker schema, "jobs": ids of jobs}.
CHANNEL = "jobs:result"


class ResultStatus(IntEnum):
    """The status in the row of a result. It holds while the job itself does not exist, or has failed for good."""

    WAITING = 0
    SUCCEEDED = 1
    FAILED = 2
    REMOVED = 3
    # The value of the result says who cancelled it, and why.
    CANCELLED = 4
    EXPIRED = 5


def cancellation_text(cancelled_by: str, reason: str) -> str:
    """Return "Cancelled by maria: sent twice", as the history has it, with as much of it as is known."""
    name = f" by {cancelled_by}" if cancelled_by else ""
    return f"Cancelled{name}: {reason}" if reason else f"Cancelled{name}."


PRUNE_RESULTS = """/* gw:prune-results */
select number, reached from :SCHEMA._private_prune_results(
    %(most)s::int, %(go_on_at)s::timestamptz, %(now)s::timestamptz)"""

PRUNE_WAITERS = "/* gw:prune-waiters */ select :SCHEMA._private_prune_waiters()"


class Pruned(NamedTuple):
    """How many expired results were found, and where the next call continues; None after the last result."""

    found: int
    reached: datetime | None


def prune_results(
    cursor: Any, *, schema: str, go_on_at: datetime | None = None, most: int = MOST_PRUNED, now: datetime | None = None
) -> Pruned:
    """Delete some of the results that have expired.

    ``go_on_at`` is where the last call ended: entries of deleted results before it are not read again.
    """
    cursor.execute(statement(PRUNE_RESULTS, schema), {"most": most, "go_on_at": go_on_at, "now": now})
    found, reached = cursor.fetchone()
    return Pruned(found, reached if found >= most else None)


def prune_waiters(cursor: Any, *, schema: str) -> None:
    """Delete the rows of sessions that waited for a result and disappeared."""
    cursor.execute(statement(PRUNE_WAITERS, schema))
