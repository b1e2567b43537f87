"""Known crontabs: which items there are, and when each last fired; ``crontab_ticks`` fires them.

The rows mean what they mean to graphile-worker's own workers, which may share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.search_path import qualified

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds_of(moment: str) -> str:
    """Return an expression for a time as a number: text would depend on the session's DateStyle."""
    return f"(extract(epoch from {moment}) * 1000000::numeric)::bigint"


CLOCK = f"/* gw:cron:clock */ select {microseconds_of('coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp())')}"

_KNOWN = f"""
select identifier, {microseconds_of(readable("known_since"))}, {microseconds_of(readable("last_execution"))},
    coalesce(last_execution = 'infinity', false)
from :SCHEMA._private_known_crontabs"""

KNOWN = f"""/* gw:cron:known */ {_KNOWN}
order by identifier"""

# A join, because `= any` would compare every name with every row.
KNOWN_NAMED = f"""/* gw:cron:known-named */ {_KNOWN}
join pg_catalog.unnest(%(identifiers)s::text[]) as name(identifier) using (identifier)
order by identifier"""


# How long a statement may wait for a lock while it holds others: less than PostgreSQL waits before it looks for a
# deadlock. So a session that waits for one of the rows held here is never chosen as the victim of a deadlock.
def bounded_wait(milliseconds: str) -> str:
    """Return an expression that sets how long a statement waits for a lock at most."""
    return f"""pg_catalog.set_config('lock_timeout', greatest(1, least({milliseconds},
        extract(epoch from pg_catalog.current_setting('deadlock_timeout')::interval) * 500::numeric
    )::int)::text, true)"""


BOUNDED_WAIT = bounded_wait("200")

REGISTER = f"""/* gw:cron:register */
with bound as materialized (select {BOUNDED_WAIT} as milliseconds)
insert into :SCHEMA._private_known_crontabs (identifier, known_since)
select name.identifier, coalesce(%(since)s::timestamptz, pg_catalog.clock_timestamp())
from bound cross join pg_catalog.unnest(%(identifiers)s::text[]) as name(identifier)
where bound.milliseconds is not null
order by name.identifier
on conflict (identifier) do nothing"""


class KnownCrontab(Frozen):
    """The row of an item."""

    identifier: str
    known_since: datetime
    # For a paused item, the last date that Python can represent: its row has infinity here.
    last_execution: datetime | None
    is_paused: bool = False


def database_now(cursor: Any, *, now: datetime | None = None) -> datetime:
    """Return the time of the database's clock now, not that of the beginning of the transaction."""
    cursor.execute(qualified(CLOCK), {"now": now})
    return moment_of(cursor.fetchone()[0])


def known_crontabs(cursor: Any, identifiers: Iterable[str] | None = None, *, schema: str) -> dict[str, KnownCrontab]:
    """Return the known items with these identifiers, or all, by identifier."""
    if identifiers is None:
        cursor.execute(statement(KNOWN, schema), {})
    else:
        cursor.execute(statement(KNOWN_NAMED, schema), {"identifiers": list(identifiers)})
    return {
        name: KnownCrontab(
            identifier=name,
            known_since=moment_of(since),
            last_execution=None if last is None else moment_of(last),
            is_paused=is_paused,
        )
        for name, since, last, is_paused in cursor.fetchall()
    }


def register(cursor: Any, identifiers: Iterable[str], *, schema: str, since: datetime | None = None) -> None:
    """Make items known from now on, or since a time; items that are known already stay as they are.

    Raise LockNotAvailable when another session is adding one of the items and has not committed in time. The caller can
    then try one name at a time, as often as it takes: such a call holds nothing that the other session could wait for.
    """
    cursor.execute(statement(REGISTER, schema), {"identifiers": list(identifiers), "since": since})


# A paused item has infinity as its last tick, and stays paused.
FORGET_LATER = """/* gw:cron:forget-later */
delete from :SCHEMA._private_known_crontabs as known
where (known.known_since > %(now)s::timestamptz or known.last_execution > %(now)s::timestamptz)
    and known.last_execution is distinct from 'infinity'"""


def forget_later(cursor: Any, *, schema: str, now: datetime) -> None:
    """Forget items that became known, or last fired, after a time: for tests, whose clocks start at any time."""
    cursor.execute(statement(FORGET_LATER, schema), {"now": now})


def moment_of(microseconds: int) -> datetime:
    """Return the time of a number that ``microseconds_of`` made."""
    return EPOCH + timedelta(microseconds=microseconds)
