"""Statistics of named queues and of workers, for the charts of the admin."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.statistics.statistics import (
    KEPT_SECONDS,
    MINUTE,
    MOST_FOLDED,
    TEN_MINUTES,
    Row,
    document,
)

QUEUE, WORKER = "queue", "worker"
# The name of rows that count all names of a period that have no row of their own.
OTHERS = ""
# So many names have rows of their own in each period.
MOST_NAMES = 50

APPEND = """/* gw:append-named-statistics */
insert into :SCHEMA._private_named_statistics_pending (counted) values (%s::json)"""

FOLD = """/* gw:fold-named-statistics */
select :SCHEMA._private_fold_named_statistics_v1(
    %(seconds)s::float8 * interval '1 second', %(most)s::int, %(most_names)s::int)"""

PRUNE = """/* gw:prune-named-statistics */
delete from only :SCHEMA._private_named_statistics as known
using (values (60, %(minutes)s::float8), (600, %(ten_minutes)s), (3600, %(older_than)s), (86400, %(older_than)s))
    as kept (period_seconds, seconds)
where known.kind = any (array['queue', 'worker']) and known.period_seconds = kept.period_seconds
    and known.started_at < pg_catalog.now() - least(kept.seconds, %(older_than)s) * interval '1 second'"""

READ = """/* gw:read-named-statistics */
select extract(epoch from started_at)::bigint, name, succeeded, failed, permanently_failed, interrupted,
    duration_seconds, wait_seconds, durations, waits
from :SCHEMA._private_named_statistics
where kind = %(kind)s::text and period_seconds = %(period)s::int and started_at >= %(since)s::timestamptz
    and name = any (%(names)s::text[])
order by started_at"""

BUSIEST = """/* gw:busiest-names */
select kind, name
from :SCHEMA._private_named_statistics
where kind = any (array['queue', 'worker']) and period_seconds = %(period)s::int
    and started_at >= %(since)s::timestamptz and name <> %(others)s::text
group by kind, name
order by sum(succeeded + failed + permanently_failed) desc, name
limit %(limit)s::int"""


class NamedRows(NamedTuple):
    """The rows of one queue or worker, and the starts of periods in which it may be among the others."""

    rows: list[Row]
    unknown_starts: frozenset[int]


def append(cursor: Any, rows: Iterable[tuple[str, Row]], *, schema: str) -> None:
    """Store counts for the next fold(): each is a kind, and a row whose identifier is the name."""
    documents = [{**document(row), "kind": kind, "name": row.task_identifier} for kind, row in rows]
    cursor.execute(statement(APPEND, schema), [json.dumps(documents, separators=(",", ":"))])


def fold(cursor: Any, *, schema: str, at_least_after: float = 0.0) -> bool:
    """Add the appended counts to the statistics, as ``statistics.fold``; return True if there may be more to add."""
    parameters = {"seconds": at_least_after, "most": MOST_FOLDED, "most_names": MOST_NAMES}
    cursor.execute(statement(FOLD, schema), parameters)
    return bool(cursor.fetchone()[0] >= MOST_FOLDED - 1)


def prune(cursor: Any, *, schema: str, older_than: float) -> int:
    """Delete rows older than ``older_than`` seconds, of finer resolutions sooner; return how many were deleted."""
    kept = {"older_than": older_than, "minutes": KEPT_SECONDS[MINUTE], "ten_minutes": KEPT_SECONDS[TEN_MINUTES]}
    cursor.execute(statement(PRUNE, schema), kept)
    return max(int(cursor.rowcount), 0)


def read(cursor: Any, kind: str, name: str, *, schema: str, period: int, since: datetime) -> NamedRows:
    """Return the rows of a queue or a worker since a time, the oldest first."""
    parameters = {"kind": kind, "period": period, "since": since, "names": [name, OTHERS]}
    cursor.execute(statement(READ, schema), parameters)
    found = [Row(*row) for row in cursor.fetchall()]
    rows = [row for row in found if row.task_identifier == name]
    with_others = {row.started_at for row in found if row.task_identifier == OTHERS}
    return NamedRows(rows, frozenset(with_others.difference(row.started_at for row in rows)))


def busiest_names(
    cursor: Any, *, schema: str, period: int, since: datetime, limit: int = 2 * MOST_NAMES
) -> dict[str, Sequence[str]]:
    """Return, by kind, the names with the most runs since a time."""
    parameters = {"period": period, "since": since, "others": OTHERS, "limit": limit}
    cursor.execute(statement(BUSIEST, schema), parameters)
    found = cursor.fetchall()
    return {kind: [name for each, name in found if each == kind] for kind in (QUEUE, WORKER)}
