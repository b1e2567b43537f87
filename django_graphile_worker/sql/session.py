"""The state of a database session: read what a task left behind, and set up the sessions of the worker."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django_graphile_worker.sql.search_path import qualified

# No catalogue lists settings that no extension has declared (app.tenant), so they are read by name.
# The statement runs outside any transaction, so every advisory lock that it finds belongs to the session.
# Statements that libpq prepared belong to the driver; statements of PREPARE do not.
SESSION_STATE = """/* gw:session */
select 'setting', name, setting from pg_catalog.pg_settings
    where source operator(pg_catalog.=) 'session' and name not in ('application_name', 'transaction_isolation',
        'transaction_read_only', 'transaction_deferrable')
union all
select 'setting', name, value
    from pg_catalog.unnest(%(custom_settings)s::pg_catalog.text[]) as name,
        lateral (select nullif(pg_catalog.current_setting(name, true), '') as value) as current
    where value is not null
union all
select 'setting', 'role', pg_catalog.current_setting('role')
union all
select 'session user', session_user, null
union all
select 'channel listened to', channel, null from pg_catalog.pg_listening_channels() as channel
union all
select 'advisory lock', pg_catalog.concat_ws('/', classid, objid, objsubid), mode from pg_catalog.pg_locks
    where locktype operator(pg_catalog.=) 'advisory' and pid operator(pg_catalog.=) pg_catalog.pg_backend_pid()
union all
select 'temporary table', relname, null from pg_catalog.pg_class
    where relnamespace operator(pg_catalog.=) pg_catalog.pg_my_temp_schema()
        and relkind in ('r', 'v', 'S', 'm', 'p', 'f')
union all
select 'prepared statement', name, null from pg_catalog.pg_prepared_statements where from_sql
union all
select 'open cursor', name, null from pg_catalog.pg_cursors where is_holdable and name operator(pg_catalog.<>) ''"""

# The functions of the site itself, with their text. Functions of PostgreSQL and of extensions leave nothing in the
# session.
_FUNCTIONS_OF_THE_SITE = """
select function.proname::pg_catalog.text, language.lanname::pg_catalog.text, function.prosrc
from pg_catalog.pg_proc as function
join pg_catalog.pg_language as language on language.oid operator(pg_catalog.=) function.prolang
where {wanted}
    and language.lanname not in ('internal', 'c')
    and function.pronamespace not in (
        select oid from pg_catalog.pg_namespace where nspname in ('pg_catalog', 'information_schema'))
    and not exists (
        select from pg_catalog.pg_depend as dependency
        where dependency.classid operator(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
            and dependency.objid operator(pg_catalog.=) function.oid
            and dependency.deptype operator(pg_catalog.=) 'e')"""

FUNCTIONS_OF_THE_SITE = "/* gw:session-functions */" + _FUNCTIONS_OF_THE_SITE.format(
    wanted="function.proname operator(pg_catalog.=) any (%(names)s::pg_catalog.name[])"
)
TRIGGERS_OF_THE_SITE = "/* gw:session-triggers */" + _FUNCTIONS_OF_THE_SITE.format(
    wanted="function.oid in (select tgfoid from pg_catalog.pg_trigger where not tgisinternal)"
)

# The search_path has no schema in which other roles can create objects: their functions and operators, called by a
# statement of the worker, would have the worker's rights. So the statements that pin it name the schema of everything
# that they use. Time limits that are set for a role or a database are not meant for the statements of a worker. The
# isolation level is READ COMMITTED, because only at that level a statement that has waited for a row reads it again.
#
# The worker must not change a session behind a pooler, where the process id differs from the process id that the client
# received. There it begins each transaction with BEGIN_LIMITED, in one message.
SET_UP_SESSION = """/* gw:set-up-session */
select pg_catalog.pg_backend_pid() operator(pg_catalog.=) %(backend_pid)s::pg_catalog.int4,
    case when pg_catalog.pg_backend_pid() operator(pg_catalog.=) %(backend_pid)s::pg_catalog.int4
        then pg_catalog.set_config(name, wanted, false) end
from (values
    ('search_path', 'pg_catalog, pg_temp'),
    ('statement_timeout', %(statement_timeout)s::pg_catalog.text),
    ('transaction_timeout', '0'),
    ('default_transaction_isolation', 'read committed')) as settings (name, wanted)
where pg_catalog.current_setting(name, true) is not null"""

LIMIT_TRANSACTION = """/* gw:limit-transaction */
select pg_catalog.set_config(name, wanted, true)
from (values
    ('search_path', 'pg_catalog, pg_temp'),
    ('statement_timeout', '{milliseconds:d}'),
    ('transaction_timeout', '0')) as limits (name, wanted)
where pg_catalog.current_setting(name, true) is not null"""

BEGIN_LIMITED = "/* gw:begin */ begin isolation level read committed;" + LIMIT_TRANSACTION

CONFIGURE_SESSION = """/* gw:configure-session */
select pg_catalog.set_config(name, wanted, false)
from pg_catalog.json_each_text(%(settings)s::pg_catalog.json) as settings (name, wanted)"""

FORGET_PLANS = "/* gw:forget-plans */ discard plans"

SessionState = frozenset[tuple[str, str, str | None]]


def session_state(cursor: Any, custom_settings: Iterable[str] = ()) -> SessionState:
    """Return the state of this session beyond the defaults of the server: changes by jobs, and changes at its start."""
    cursor.execute(qualified(SESSION_STATE), {"custom_settings": list(custom_settings)})
    return frozenset((str(kind), str(name), value) for kind, name, value in cursor.fetchall())


class SiteFunction(NamedTuple):
    """A function that the site has created in this database."""

    name: str
    language: str
    text: str


def functions_of_the_site(cursor: Any, names: Iterable[str]) -> list[SiteFunction]:
    """Return the functions of the site that have these names."""
    cursor.execute(FUNCTIONS_OF_THE_SITE, {"names": list(names)})
    return [SiteFunction._make(row) for row in cursor.fetchall()]


def triggers_of_the_site(cursor: Any) -> list[SiteFunction]:
    """Return the functions of all triggers of the site."""
    cursor.execute(TRIGGERS_OF_THE_SITE)
    return [SiteFunction._make(row) for row in cursor.fetchall()]


def set_up_session(cursor: Any, seconds: float, *, backend_pid: int) -> bool:
    """Limit the statements of this session to this many seconds, and its search_path to PostgreSQL's own objects.

    Return False behind a pooler, where the session stays as it is and each transaction needs ``begin_limited``.
    """
    parameters = {"statement_timeout": str(_milliseconds(seconds)), "backend_pid": backend_pid}
    # Not prepared: behind a pooler, the next statement of the same name may reach another server process.
    cursor.execute(SET_UP_SESSION, parameters, prepare=False)
    return all(is_ours for is_ours, _ in cursor.fetchall())


def begin_limited(cursor: Any, seconds: float) -> None:
    """Begin a transaction with this many seconds for each statement, and without objects of others on its path."""
    cursor.execute(BEGIN_LIMITED.format(milliseconds=_milliseconds(seconds)), prepare=False)


def limit_transaction(cursor: Any, seconds: float) -> None:
    """Limit the statements of the transaction as ``begin_limited`` does, from now on."""
    cursor.execute(LIMIT_TRANSACTION.format(milliseconds=_milliseconds(seconds)), prepare=False)


def configure_session(cursor: Any, settings: Mapping[str, str]) -> None:
    """Change settings until the session ends; no other client may share the session."""
    cursor.execute(CONFIGURE_SESSION, {"settings": json.dumps(dict(settings))}, prepare=False)


def forget_plans(cursor: Any) -> None:
    """Have the statements of this session planned anew, also those of functions, for the tables as they are now."""
    cursor.execute(FORGET_PLANS)


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)
