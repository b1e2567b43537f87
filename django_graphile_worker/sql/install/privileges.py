"""What roles may do: scripts that grant what a role needs, and whether row-level security hides the tables from it."""

from __future__ import annotations

import re
from types import MappingProxyType

from django_graphile_worker.sql.statements import Cursor, ddl, literal, qualified, quoted, statement

# Row-level security is on for these tables, and there are no policies unless an owner created some. To a role that is
# not exempt and that no policy allows to read, the tables look empty, which is worse than an error.
HIDDEN_TABLES = """/* gw:hidden_tables */
    select current_user, array_agg(class.relname::text order by class.relname)
    from pg_catalog.pg_class as class
    join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
    where namespace.nspname = %s
        and class.relkind in ('r', 'p')
        and class.relname = any(array['_private_jobs', '_private_job_queues', '_private_tasks'])
        and pg_catalog.row_security_active(class.oid)
        and not exists (
            select from pg_catalog.pg_policy as policy
            where policy.polrelid = class.oid
                and policy.polpermissive
                and policy.polcmd in ('*', 'r')
                and exists (
                    select from pg_catalog.unnest(policy.polroles) as role (id)
                    where role.id = 0::pg_catalog.oid or pg_catalog.pg_has_role(role.id, 'usage')
                )
        )"""

# Whether the tables exist, and whether HIDDEN_TABLES must be sent. The statement reads no table, because that would
# cost a new session time, and the first job waits for the answer.
WORKER_TABLES = """/* gw:worker_tables */
    select pg_catalog.to_regclass(':SCHEMA._private_workers') is not null, coalesce(
        pg_catalog.row_security_active(pg_catalog.to_regclass(':SCHEMA._private_jobs'))
        or pg_catalog.row_security_active(pg_catalog.to_regclass(':SCHEMA._private_job_queues'))
        or pg_catalog.row_security_active(pg_catalog.to_regclass(':SCHEMA._private_tasks')), false)"""


def hidden_tables(cursor: Cursor, *, schema: str) -> tuple[str, tuple[str, ...]]:
    """Return the current role, and the tables whose rows row-level security hides from it."""
    cursor.execute(qualified(HIDDEN_TABLES), [schema])
    role, tables = cursor.fetchone()
    return str(role), tuple(tables or ())


def worker_tables(cursor: Cursor, *, schema: str) -> tuple[bool, bool]:
    """Return whether a worker's tables exist, and whether row-level security applies to the current role."""
    cursor.execute(statement(WORKER_TABLES, schema))
    are_installed, are_secured = cursor.fetchone()
    return bool(are_installed), bool(are_secured)


# The files of ddl by the purpose of the role.
GRANT_FILES = MappingProxyType(
    {
        "adder": ("grants_adder.sql",),
        "keyed-adder": ("grants_adder.sql", "grants_keys.sql"),
        "worker": ("grants_worker.sql",),
        "viewer": ("grants_viewer.sql",),
    }
)
# PostgreSQL cuts longer names, and the cut name could be the name of another policy.
MAX_NAME_LENGTH = 63
_EVERY_ROW = re.compile(r":EVERY_ROW\((?P<verb>\w+), (?P<command>\w+)\)\n")
_TOKEN = re.compile(r":(?P<quote>'?)(?:(?P<role>ROLE)|POLICY\((?P<policy>\w+)\))(?P=quote)")


def grants_script(kind: str, role: str, *, schema: str) -> str:
    """Return the statements that grant a role the privileges of this kind of role."""

    def name(found: re.Match[str]) -> str:
        text = role if found["role"] else _policy(role, found["policy"])
        return literal(text) if found["quote"] else quoted(text)

    def every_row(found: re.Match[str]) -> str:
        text = ddl("grants_every_row.sql", schema)
        return text.replace(":VERB", found["verb"]).replace(":COMMAND", found["command"])

    text = _EVERY_ROW.sub(every_row, "\n".join(ddl(filename, schema) for filename in GRANT_FILES[kind]))
    return _TOKEN.sub(name, text.replace("$$", _dollars(role)))


def _dollars(role: str) -> str:
    """Return a dollar quote that does not occur in the name of the role, so that the name cannot end it."""
    quote = "$$"
    while quote in role:
        quote = f"$grants{'_' * len(quote)}$"
    return quote


def _policy(role: str, what: str) -> str:
    """Return the name of a policy of this role alone."""
    room = MAX_NAME_LENGTH - len(what) - 1
    return f"{role.encode()[:room].decode(errors='ignore')}_{what}"
