"""What ``doctor`` reads of the server, the tables and the role, and its two statements that correct a table.

Alerts read from here what holds vacuum back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django_graphile_worker.sql.statements import qualified, quoted, statement
from django_graphile_worker.text import readable_duration

# So many transactions have begun since something that holds vacuum back, if the server does not tell its time.
MANY_TRANSACTIONS = 100_000

SERVER = """/* gw:doctor-server */
select current_setting('server_version'), current_user::text, pg_is_in_recovery(),
    current_setting('autovacuum') = 'on', current_setting('track_counts') = 'on',
    extract(epoch from clock_timestamp())::float8, pg_has_role(current_user, 'pg_read_all_stats', 'usage')"""


class Server(NamedTuple):
    """The server, and the role of the session; ``now`` is its clock, in seconds since 1970."""

    version: str
    role: str
    is_standby: bool
    has_autovacuum: bool
    counts_rows: bool
    now: float
    # Without it, PostgreSQL hides the times and the queries of the sessions of other roles.
    sees_sessions: bool


def server(cursor: Any) -> Server:
    cursor.execute(qualified(SERVER))
    return Server._make(cursor.fetchone())


# Vacuum keeps the rows that these could still read. The server does not tell when a slot or a session of another role
# began, but how many transactions have begun since. Autovacuum itself holds nothing back.
SNAPSHOT_HOLDERS = """/* gw:doctor-snapshot-holders */
select * from (
    select case when activity.backend_type = 'walsender' then 'standby' else 'session' end,
        activity.pid::text, coalesce(activity.application_name, ''), coalesce(activity.state, ''),
        coalesce(left(activity.query, 300), ''),
        extract(epoch from clock_timestamp() - activity.xact_start)::float8,
        pg_catalog.age(coalesce(activity.backend_xmin, activity.backend_xid))
    from pg_stat_activity as activity
    where coalesce(activity.backend_xmin, activity.backend_xid) is not null
        and (activity.datname = current_database() or activity.backend_type = 'walsender')
        and activity.pid <> pg_backend_pid() and coalesce(activity.backend_type, '') <> 'autovacuum worker'
    union all
    select 'prepared', prepared.gid, '', '', '', extract(epoch from clock_timestamp() - prepared.prepared)::float8,
        pg_catalog.age(prepared.transaction)
    from pg_prepared_xacts as prepared where prepared.database = current_database()
    union all
    select 'slot', slot.slot_name::text, '', '', '', null, pg_catalog.age(slot.xmin)
    from pg_replication_slots as slot where slot.xmin is not null
) as holder (kind, name, application, state, query, seconds, transactions)
where holder.seconds >= %(seconds)s::float8
    or holder.seconds is null and holder.transactions >= %(transactions)s::int4
order by holder.transactions desc limit 5"""


class SnapshotHolder(NamedTuple):
    """What holds vacuum back: a session, a prepared transaction, a replication slot, or a standby that reads."""

    kind: str
    name: str
    application: str
    state: str
    # Of a session of another role, only members of pg_read_all_stats see more than the number of transactions.
    query: str
    seconds: float | None
    transactions: int

    @property
    def text(self) -> str:
        """A sentence without its period."""
        since = f"{self.transactions:,} transactions" if self.seconds is None else readable_duration(self.seconds)
        who = {
            "session": f"The session {self.name}",
            "standby": f"A standby (walsender {self.name})",
            "prepared": f"The prepared transaction {self.name!r}",
            "slot": f"The replication slot {self.name!r}",
        }[self.kind]
        facts = ", ".join(filter(None, (self.application, self.state)))
        return f"{who}{f' ({facts})' if facts else ''} has held vacuum back for {since}"

    @property
    def way_out(self) -> str:
        name = self.name.replace("'", "''")
        return {
            "session": f"select pg_terminate_backend({self.name}); ends it.",
            "standby": "End its long queries, or set hot_standby_feedback = off.",
            "prepared": f"rollback prepared '{name}'; or commit it.",
            "slot": f"If unused: select pg_drop_replication_slot('{name}');",
        }[self.kind]

    @property
    def remedy(self) -> str:
        return f"Until it ends, finished jobs stay as dead rows, and the tables grow. {self.way_out}"


def snapshot_holders(cursor: Any, *, seconds: float) -> list[SnapshotHolder]:
    """Return what has held vacuum back for so many seconds, or for many transactions if the time is unknown."""
    cursor.execute(qualified(SNAPSHOT_HOLDERS), {"seconds": seconds, "transactions": MANY_TRANSACTIONS})
    return [SnapshotHolder._make(row) for row in cursor.fetchall()]


TABLES = """/* gw:doctor-tables */
select class.relname::text, pg_relation_size(class.oid), pg_indexes_size(class.oid),
    greatest(class.reltuples::float8, statistics.n_live_tup::float8, 0::float8),
    coalesce(statistics.n_dead_tup, 0),
    extract(epoch from clock_timestamp() - greatest(statistics.last_vacuum, statistics.last_autovacuum))::float8,
    exists (select from pg_stat_progress_vacuum as progress where progress.relid = class.oid),
    coalesce((select option.option_value::bool from pg_options_to_table(class.reloptions) as option
        where option.option_name = 'autovacuum_enabled'), true)
from pg_class as class
join pg_namespace as namespace on namespace.oid = class.relnamespace
left join pg_stat_all_tables as statistics on statistics.relid = class.oid
where namespace.nspname = %s and class.relkind = 'r'
order by class.relname"""


class Table(NamedTuple):
    """A table of the schema; the numbers of rows are estimates of the server."""

    name: str
    heap_bytes: int
    index_bytes: int
    rows: float
    dead_rows: int
    # None if it was never vacuumed.
    vacuumed_seconds_ago: float | None
    is_being_vacuumed: bool
    has_autovacuum: bool


def tables(cursor: Any, *, schema: str) -> list[Table]:
    cursor.execute(qualified(TABLES), [schema])
    return [Table._make(row) for row in cursor.fetchall()]


# Partitions are used through their table. Of two tables, a worker needs less.
RIGHTS = """/* gw:doctor-rights */
select coalesce(bool_or(pg_has_role(class.relowner, 'usage')), false),
    coalesce(bool_or((select has_function_privilege(proc.oid, 'execute') from pg_proc as proc
        where proc.pronamespace = namespace.oid and proc.proname = '_private_adder_add_job')
        and pg_catalog.has_schema_privilege(namespace.oid, 'usage')), false),
    coalesce(array_agg(class.relname::text order by class.relname) filter (where not (
        has_table_privilege(class.oid, 'select') and has_table_privilege(class.oid, 'insert')
        and has_table_privilege(class.oid, 'update') and has_table_privilege(class.oid, 'delete'))), '{}'::text[])
from pg_class as class
join pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = %s and class.relkind in ('r', 'p') and not class.relispartition
    and class.relname <> '_private_installation' and class.relname <> 'migrations'"""


class Rights(NamedTuple):
    """What the role of the session may do in the schema."""

    is_owner: bool
    # By the function that is for roles without rights to tables.
    may_add: bool
    # The tables in which it may not read and write rows, as workers do.
    missing: list[str]


def rights(cursor: Any, *, schema: str) -> Rights:
    cursor.execute(qualified(RIGHTS), [schema])
    return Rights._make(cursor.fetchone())


VACUUM = "/* gw:doctor-vacuum */ vacuum (analyze, skip_locked) :SCHEMA.:TABLE"
# Takes a lock for which neither reading nor writing waits.
RESET_AUTOVACUUM = "/* gw:doctor-reset-autovacuum */ alter table :SCHEMA.:TABLE reset (autovacuum_enabled)"


def vacuum(cursor: Any, table: str, *, schema: str) -> None:
    """Vacuum the table; not inside a transaction."""
    cursor.execute(statement(VACUUM, schema).replace(":TABLE", quoted(table)))


def reset_autovacuum(cursor: Any, table: str, *, schema: str) -> None:
    """Let autovacuum run on the table again."""
    cursor.execute(statement(RESET_AUTOVACUUM, schema).replace(":TABLE", quoted(table)))
