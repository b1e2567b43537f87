"""What the names in a statement mean, under a search_path on which somebody has planted look-alikes.

A session with `debug_print_parse` receives the tree of each statement that it parses, with the OIDs of all functions,
operators and types. So a statement need not run, and no call is missed because a table has no rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

# The first schema has a copy of each function and type of PostgreSQL: a name without a prefix means the copy.
# The last schema has an operator for each pair of types for which PostgreSQL has none, which PostgreSQL prefers to its
# own operators that need a conversion.
COPIES, LOOK_ALIKES, EXACT = "planted_copies", "planted_look_alikes", "planted_exact"
SEARCH_PATH = f"{COPIES}, pg_catalog, {LOOK_ALIKES}"
# With a copy of each operator as well: nothing but a full name is safe before pg_catalog.
BEFORE_CATALOG = f"{COPIES}, {EXACT}, pg_catalog, {LOOK_ALIKES}"

# Everything that is planted has an OID in this range.
FIRST_OID = 3_000_000_000
_PLANTED_OID = re.compile(r"\b3\d{9}\b")

_OPERANDS = """text varchar bpchar "char" name int2 int4 int8 float4 float8 numeric bool date timestamp timestamptz time
    interval json jsonb bytea uuid oid xid tid regclass regproc regnamespace regtype record text[] varchar[] name[]
    int2[] int4[] int8[] float8[] numeric[] bool[] timestamptz[] interval[] json[] jsonb[] oid[]"""

_PLANT_OPERATORS = f"""
with operands as materialized (select unnest(%s::regtype[])::oid as type)
insert into pg_operator (oid, oprname, oprnamespace, oprowner, oprkind, oprcanmerge, oprcanhash, oprleft, oprright,
    oprresult, oprcom, oprnegate, oprcode, oprrest, oprjoin)
select {FIRST_OID} + 100000 + row_number() over (), name.oprname, '{LOOK_ALIKES}'::regnamespace, 10,
    case when "left".type = 0 then 'l' else 'b' end::"char", false, false, "left".type, "right".type,
    'text'::regtype, 0, 0, 'pg_catalog.textcat'::regproc, 0, 0
from (select distinct oprname from pg_operator where oprname ~ %s) as name,
    (select type from operands union all select 0) as "left", operands as "right"
where not exists (
    select from pg_operator as known
    where known.oprname = name.oprname and known.oprleft = "left".type and known.oprright = "right".type)
"""
# Those of geometry and of full text search occur nowhere.
_OPERATOR_NAMES = r"^(=|<>|<|>|<=|>=|\+|-|\*|/|%|&|\||\^|\|\||->|->>|#>|#>>|#-|\?|\?\||\?&|@>|<@|&&|!?~~?\*?)$"


def plant(connection: psycopg.Connection[Any]) -> None:
    """Plant look-alikes. The catalogs are filled directly: the commands take a hundred times as long."""
    connection.execute(f"create schema {COPIES}; create schema {LOOK_ALIKES}; create schema {EXACT}".encode())
    connection.execute("set allow_system_table_mods = on")
    _copy(connection, "pg_proc", where="pronamespace = 'pg_catalog'::regnamespace", pronamespace=COPIES)
    _copy(connection, "pg_aggregate", where="true")
    _copy(connection, "pg_type", where="typnamespace = 'pg_catalog'::regnamespace", typnamespace=COPIES)
    _copy(connection, "pg_operator", where="oprnamespace = 'pg_catalog'::regnamespace", oprnamespace=EXACT)
    connection.execute(_PLANT_OPERATORS, [_OPERANDS.split(), _OPERATOR_NAMES])


def _copy(connection: psycopg.Connection[Any], catalog: str, *, where: str, **schema: str) -> None:
    columns = [
        name
        for (name,) in connection.execute(
            "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 order by attnum", [catalog]
        )
    ]
    changed = {name: f"{FIRST_OID} + {name}::oid::int8" for name in ("oid", "aggfnoid", "typarray")}
    changed["typarray"] = f"case when typarray = 0 then 0 else {changed['typarray']} end"
    changed |= {name: f"'{value}'::regnamespace" for name, value in schema.items()}
    values = ", ".join(changed.get(name, name) for name in columns)
    connection.execute(f"insert into {catalog} select {values} from {catalog} where {where}".encode())


class Parser:
    """A session that parses statements, and tells which planted objects they mean."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._trees: list[str] = []
        connection.add_notice_handler(lambda notice: self._trees.append(notice.message_detail or ""))
        connection.execute("set client_min_messages = log; set debug_pretty_print = off")

    def parse(self, text: str, types: Sequence[str] = (), *, path: str = "pg_catalog") -> set[int]:
        """Return the OIDs of the planted objects that the statement means; its parameters are $1, $2 …"""
        declared = f" ({', '.join(f'pg_catalog.{each}' for each in types)})" if types else ""
        with self._printing(path):
            self._connection.execute(f"prepare parsed{declared} as {text}".encode())
        self._connection.execute("deallocate parsed")
        return {int(oid) for tree in self._trees for oid in _PLANTED_OID.findall(tree)}

    @contextmanager
    def _printing(self, path: str) -> Iterator[None]:
        self._connection.execute(f"set search_path = {path}; set debug_print_parse = on".encode())
        self._trees.clear()
        try:
            yield
        finally:
            self._connection.execute("set search_path = pg_catalog; set debug_print_parse = off")
