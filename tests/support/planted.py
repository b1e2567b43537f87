"""Look-alikes of PostgreSQL's own functions and operators, such as a role plants that may create objects in a schema.

PostgreSQL looks into pg_catalog first, so a copy of a function there is never called. One that fits the arguments of
a call better is: `count(bigint)` beside PostgreSQL's `count("any")`, say. Each of these notes that it was called, in a
way that no rollback undoes, and fails.
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
LURE = "lure"

_TYPES = (
    "text varchar name int2 int4 int8 float8 numeric bool timestamptz interval json jsonb oid regclass "
    "text[] int4[] int8[] float8[] jsonb[] json[]"
)
TYPES = tuple(_TYPES.split())
# For functions of two arguments, of which there are many.
FEWER_TYPES = tuple(
    kind for kind in TYPES if kind not in ("name", "int2", "regclass", "float8[]", "jsonb[]", "json[]", "int8[]")
)
# At places where PostgreSQL's own function takes a type that is fixed.
USUAL_TYPES = ("text", "varchar", "int4", "int8", "jsonb")
_OPERATORS = "= <> < > <= >= + - * / % & || -> ->> #> #>> ? ?| ?& @> ~~ ~"
OPERATORS = tuple(_OPERATORS.split())
# So many functions and operators are made by one statement.
PORTION = 500

_CALL = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\(")


def names_called() -> set[str]:
    """What stands before a parenthesis anywhere in the package's SQL, or looks as if it did."""
    texts = (
        path.read_text(encoding="utf-8") for path in (PACKAGE / "sql").rglob("*") if path.suffix in (".py", ".sql")
    )
    return {name for text in texts for name in _CALL.findall(text)}


class Planted:
    """The look-alikes in one database, all in a schema of their own."""

    def __init__(self, connection: psycopg.Connection[Any], role: str) -> None:
        self._connection = connection
        self._role = role
        self.number = 0

    def plant(self) -> None:
        """Make everything as the role, which has no right but to create objects in the schema."""
        connection = self._connection
        connection.execute(f"create role {self._role}".encode())
        connection.execute(
            f"create schema {LURE}; grant usage, create on schema {LURE} to {self._role}, public".encode()
        )
        connection.execute(f"set role {self._role}".encode())
        connection.execute(f"create sequence {LURE}.calls; grant usage on sequence {LURE}.calls to public".encode())
        statements = [*self._functions(), *self._operators()]
        for start in range(0, len(statements), PORTION):
            connection.execute(";".join(statements[start : start + PORTION]).encode())
        connection.execute("reset role")
        self.number = len(statements)

    def remove(self) -> None:
        """Drop everything, some at a time: PostgreSQL cannot lock so many objects at once."""
        self._connection.execute(_DROP.encode())
        self._connection.execute(f"drop schema if exists {LURE} cascade; drop role if exists {self._role}".encode())

    def calls(self) -> int:
        """How often one of them was called."""
        (calls, is_called) = self._row(f"select last_value, is_called from {LURE}.calls")
        return calls if is_called else 0

    def dependents(self) -> list[str]:
        """What in other schemas is built upon one of them."""
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
            {"schema": LURE},
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
                        f"create operator {LURE}.{operator} "
                        f"(function = {LURE}.operator_look_alike, leftarg = {left}, rightarg = {right})"
                    )


_DROP = f"""
do $do$
declare
  planted record;
  number integer := 0;
begin
  for planted in
    select proc.oid::regprocedure::text as name from pg_proc as proc
    where proc.pronamespace = (select oid from pg_namespace where nspname = '{LURE}')
  loop
    execute 'drop function ' || planted.name || ' cascade';
    number := number + 1;
    if number % 100 = 0 then
      commit;
    end if;
  end loop;
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
    """Argument types that fit some call better than what is declared."""
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
        f"create or replace function {LURE}.{name}({', '.join(types)}) returns text language plpgsql as $lure$ begin "
        f"perform pg_catalog.nextval('{LURE}.calls'); raise exception 'planted: {shown}'; end $lure$"
    )


class LuredStatements:
    """Puts the look-alikes on the search_path of our statements, and of no other that Django sends.

    An execute_wrapper. Django's own statements compare columns of type varchar, say, and so would call some of them.
    Where they are on the path of the whole session (`is_path_kept`), ours run as they come, and others without them.
    """

    def __init__(self, *, is_path_kept: bool = False) -> None:
        self.texts: set[str] = set()
        self._is_path_kept = is_path_kept

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        is_ours = "/* gw:" in str(sql) or "._private_" in str(sql)
        if is_ours:
            self.texts.add(sql)
        if is_ours is self._is_path_kept:
            return execute(sql, params, many, context)
        with _search_path(context["connection"].connection, f"public, {LURE}" if is_ours else "public"):
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
