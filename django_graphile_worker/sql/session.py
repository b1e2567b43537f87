"""Sessions of the database: the roles that a task left behind, and the settings of the worker's sessions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from psycopg import errors
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

SESSION_ROLES = "/* gw:session-roles */ select session_user, current_user"

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


class SessionRoles(NamedTuple):
    """The role that a session logged in as, and the role whose rights its statements have."""

    session_user: str
    current_user: str

    def __str__(self) -> str:
        return self.current_user if self.current_user == self.session_user else "/".join(self)


def session_roles(pgconn: PGconn) -> SessionRoles:
    """Return the roles of a session, which a task may have changed. Takes a third of the time of a cursor."""
    result = pgconn.exec_(SESSION_ROLES.encode())
    if result.status != ExecStatus.TUPLES_OK:
        raise errors.error_from_result(result)
    return SessionRoles._make((result.get_value(0, column) or b"").decode("utf-8", "replace") for column in range(2))


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
