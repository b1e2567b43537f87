"""Row-level security: whether it hides the worker's tables from the current role."""

from __future__ import annotations

from django_graphile_worker.sql.statements import Cursor, qualified, statement

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
