"""What a database session carries from one transaction to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Settings that no extension has declared (app.tenant) are in no catalogue: they are asked for by name.
# Asked outside any transaction, so every advisory lock in sight is the session's.
# Names of statements that libpq prepared are the driver's business, those of PREPARE are not.
SESSION_STATE = """/* gw:session */
select 'setting', name, setting from pg_settings
    where source = 'session' and name not in ('application_name', 'transaction_isolation',
        'transaction_read_only', 'transaction_deferrable')
union all
select 'setting', name, value
    from unnest(%(custom_settings)s::text[]) as name,
        lateral (select nullif(current_setting(name, true), '') as value) as current
    where value is not null
union all
select 'setting', 'role', current_setting('role')
union all
select 'session user', session_user, null
union all
select 'channel listened to', channel, null from pg_listening_channels() as channel
union all
select 'advisory lock', concat_ws('/', classid, objid, objsubid), mode from pg_locks
    where locktype = 'advisory' and pid = pg_backend_pid()
union all
select 'temporary table', relname, null from pg_class
    where relnamespace = pg_my_temp_schema() and relkind in ('r', 'v', 'S', 'm', 'p', 'f')
union all
select 'prepared statement', name, null from pg_prepared_statements where from_sql
union all
select 'open cursor', name, null from pg_cursors where is_holdable and name <> ''"""

SessionState = frozenset[tuple[str, str, str | None]]


def session_state(cursor: Any, custom_settings: Iterable[str] = ()) -> SessionState:
    """Everything of this session that a new one would not have, and what its own setting-up left."""
    cursor.execute(SESSION_STATE, {"custom_settings": list(custom_settings)})
    return frozenset((str(kind), str(name), value) for kind, name, value in cursor.fetchall())
