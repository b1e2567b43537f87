"""Look-alikes of the functions and operators of PostgreSQL, as a role plants them that may create objects in a schema.

PostgreSQL searches pg_catalog first, so it never calls a plain copy of its functions. But it calls a function that fits
the arguments of a call better, such as `count(bigint)` beside its own `count("any")`. Each look-alike counts its calls
in a way that no rollback undoes, and fails.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

PACKAGE = Path(__file__).parents[2] / "django_graphile_worker"
PLANTED = "planted"

_TYPES = (
    "text varchar name int2 int4 int8 float8 numeric bool timestamptz interval json jsonb oid regclass "
    "text[] int4[] int8[] float8[] jsonb[] json[]"
)
TYPES = tuple(_TYPES.split())
# Types for functions of two arguments, of which there are many.
FEWER_TYPES = tuple(
    kind for kind in TYPES if kind not in ("name", "int2", "regclass", "float8[]", "jsonb[]", "json[]", "int8[]")
)
# Types for arguments whose type PostgreSQL's own function fixes.
USUAL_TYPES = ("text", "varchar", "int4", "int8", "jsonb")
_OPERATORS = "= <> < > <= >= + - * / % & || -> ->> #> #>> ? ?| ?& @> ~~ ~"
OPERATORS = tuple(_OPERATORS.split())
# The number of functions and operators that one statement creates.
PORTION = 500

_CALL = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\(")


def names_called() -> set[str]:
    """Return all names before a parenthesis in the SQL of the package, and some that only look like it."""
    texts = (
        path.read_text(encoding="utf-8") for path in (PACKAGE / "sql").rglob("*") if path.suffix in (".py", ".sql")
    )
    return {name for text in texts for name in _CALL.findall(text)}


class Planted:
    """The look-alikes in a database, all in a schema of their own."""

    def __init__(self, connection: psycopg.Connection[Any], role: str) -> None:
        self._connection = connection
        self._role = role
        self.number = 0

    def plant(self) -> None:
        """Create the look-alikes as the role, whose only right is to create objects in the schema."""
        connection = self._connection
        connection.execute(f"create role {self._role}".encode())
        connection.execute(
            f"create schema {PLANTED}; grant usage, create on schema {PLANTED} to {self._role}, public".encode()
        )
        connection.execute(f"set role {self._role}".encode())
        # The body of all look-alikes is the same: PostgreSQL need not compile it 26,000 times.
        connection.execute("set check_function_bodies = off")
        connection.execute(
            f"create sequence {PLANTED}.calls; grant usage on sequence {PLANTED}.calls to public".encode()
        )
        statements = [*self._functions(), *self._operators()]
        for start in range(0, len(statements), PORTION):
            connection.execute(";".join(statements[start : start + PORTION]).encode())
        connection.execute("reset check_function_bodies; reset role")
        self.number = len(statements)

    def remove(self) -> None:
        """Delete the look-alikes from the catalogs: to drop so many objects takes the server fifty times as long."""
        self._connection.execute(_DELETE.encode())
        self._connection.execute(f"drop schema if exists {PLANTED} cascade; drop role if exists {self._role}".encode())

    def calls(self) -> int:
        """Return how often look-alikes were called."""
        (calls, is_called) = self._row(f"select last_value, is_called from {PLANTED}.calls")
        return calls if is_called else 0

    def dependents(self) -> list[str]:
        """Return the objects in other schemas that depend on a look-alike."""
        rows = self._connection.execute(
            """
            select distinct pg_describe_object(classid, objid, objsubid)
            from pg_depend
            where (refclassid, refobjid) in (
                select 'pg_proc'::regclass, oid from pg_proc where pronamespace = %(schema)s::regnamespace
                union all
                select 'pg_operator'::regclass, oid from pg_operator where oprnamespace = %(schema)s::regnamespace)
            and (classid, objid) not in (
                select 'pg_operator'::regclass, oid from pg_operator where oprnamespace = %(schema)s::regnamespace)
            """,
            {"schema": PLANTED},
        )
        return [name for (name,) in rows]

    def _row(self, text: str) -> Any:
        return self._connection.execute(text.encode()).fetchone()

    def _functions(self) -> Iterator[str]:
        rows = self._connection.execute(
            """
            select distinct proname, case when provariadic = 0 then pronargs else -1 end,
                coalesce((select array_agg(format_type(type, null) order by place)
                    from unnest(proargtypes) with ordinality as argument (type, place)), '{}')
            from pg_catalog.pg_proc
            where pronamespace = 'pg_catalog'::regnamespace and proname = any(%s) and pronargs between 1 and 4
            """,
            [list(names_called())],
        ).fetchall()
        known = {(name, tuple(types)) for name, _, types in rows}
        for name, types in sorted({(name, types) for row in rows for name, types in _overloads(*row)} - known):
            yield _function(f'"{name}"', types)

    def _operators(self) -> Iterator[str]:
        known = {
            tuple(row)
            for row in self._connection.execute(
                "select oprname, format_type(oprleft, null), format_type(oprright, null) from pg_catalog.pg_operator"
                " where oprnamespace = 'pg_catalog'::regnamespace"
            )
        }
        for types in itertools.product(TYPES, TYPES):
            yield _function("operator_look_alike", types)
            full_names = tuple(FULL_NAMES.get(name, name) for name in types)
            for operator in OPERATORS:
                if (operator, *full_names) not in known:
                    left, right = types
                    yield (
                        f"create operator {PLANTED}.{operator} "
                        f"(function = {PLANTED}.operator_look_alike, leftarg = {left}, rightarg = {right})"
                    )


# Arrays, because the planner expects few look-alikes and would join them with nested loops.
_DELETE = f"""
do $do$
declare
  functions oid[] := array(select oid from pg_proc where pronamespace = to_regnamespace('{PLANTED}'));
  operators oid[] := array(select oid from pg_operator where oprnamespace = to_regnamespace('{PLANTED}'));
begin
  delete from pg_depend where classid = 'pg_proc'::regclass and objid = any (functions);
  delete from pg_depend where classid = 'pg_operator'::regclass and objid = any (operators);
  delete from pg_shdepend using pg_database
  where dbid = pg_database.oid and datname = current_database()
    and (classid = 'pg_proc'::regclass and objid = any (functions)
      or classid = 'pg_operator'::regclass and objid = any (operators));
  delete from pg_operator where oid = any (operators);
  delete from pg_proc where oid = any (functions);
end
$do$
"""

FULL_NAMES = {
    "varchar": "character varying",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float8": "double precision",
    "bool": "boolean",
    "timestamptz": "timestamp with time zone",
    "int4[]": "integer[]",
    "int8[]": "bigint[]",
    "float8[]": "double precision[]",
}


def _overloads(name: str, arity: int, declared: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return argument types that fit some calls better than the declared types."""
    if arity < 0:
        # VARIADIC "any": any number of arguments of any types.
        for number in (1, 2, 3):
            yield from ((name, types) for types in itertools.product(("text", "int4", "int8", "float8"), repeat=number))
        yield from ((name, types) for types in itertools.product(("text", "int4", "float8"), repeat=4))
        return
    kinds = {1: TYPES, 2: FEWER_TYPES}.get(len(declared))
    places = [kinds or (TYPES if _is_any(kind) else (kind, *USUAL_TYPES)) for kind in declared]
    yield from ((name, types) for types in itertools.product(*places) if not any(map(_is_any, types)))


def _is_any(kind: str) -> bool:
    return kind.strip('"').startswith("any") or kind in ("record", "internal", "cstring")


def _function(name: str, types: tuple[str, ...]) -> str:
    shown = f"{name}({', '.join(types)})".replace("'", "''")
    return (
        f"create or replace function {PLANTED}.{name}({', '.join(types)}) returns text language plpgsql as $planted$ "
        f"begin perform pg_catalog.nextval('{PLANTED}.calls'); raise exception 'planted: {shown}'; end $planted$"
    )


class PlantedSearchPath:
    """An execute wrapper that puts the look-alikes on the search_path of our statements only.

    Django's own statements would call some of them, because they compare columns of type varchar, for example. With
    `is_path_kept` the look-alikes are on the path of the whole session, and only the statements that are not ours run
    without them.
    """

    def __init__(self, *, is_path_kept: bool = False) -> None:
        self.texts: set[str] = set()
        self._is_path_kept = is_path_kept

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        is_ours = "/* gw:" in str(sql) or "_private_" in str(sql)
        if is_ours:
            self.texts.add(sql)
        if is_ours is self._is_path_kept:
            return execute(sql, params, many, context)
        with _search_path(context["connection"].connection, f"public, {PLANTED}" if is_ours else "public"):
            return execute(sql, params, many, context)


@contextmanager
def _search_path(session: psycopg.Connection[Any], path: str) -> Iterator[None]:
    (before,) = session.execute("select pg_catalog.current_setting('search_path')").fetchone() or ("",)
    change = "select pg_catalog.set_config('search_path', %s, %s)"
    is_in_transaction = session.info.transaction_status.name != "IDLE"
    session.execute(change, [path, is_in_transaction])
    try:
        yield
    finally:
        if session.info.transaction_status.name != "INERROR":
            session.execute(change, [before, is_in_transaction])
