"""Prepares the texts of statements: ``statement`` names the worker schema in them, and makes them safe.

Django's connections have the site's search_path, mostly ``"$user", public``. PostgreSQL searches pg_catalog before
these schemas, but prefers a function in them that fits the arguments better: a role that may create objects in
``public`` could have its own function called with the rights of the session that sends the statement. So names of
functions, types, relations and of operators that have no exact types get the prefix ``pg_catalog`` before a statement
is sent.

Comparisons and arithmetic stay as they are, because ``operator(pg_catalog.+)`` has another precedence than ``+``.
They are safe as long as both sides have exactly the types of an operator of PostgreSQL, so each parameter needs a type.

``call_statements`` makes statements that call a public function of the schema, with its notification or without.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Any, Protocol

Row = tuple[Any, ...]


class Cursor(Protocol):
    """The methods that the cursors of Django and of psycopg have in common."""

    def execute(self, statement: Any, parameters: Any = None, /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...

    @property
    def rowcount(self) -> int: ...


_FUNCTIONS = """
    array_agg array_length array_position bool_and bool_or btrim cardinality clock_timestamp concat concat_ws count
    current_database current_setting date_part date_trunc exp floor format generate_series has_function_privilege
    has_sequence_privilege has_table_privilege hashtext isfinite json_agg json_array_length json_build_object
    json_build_array json_each_text json_object_agg json_to_recordset json_typeof jsonb_agg
    jsonb_array_elements_text jsonb_build_object jsonb_object_agg jsonb_object_keys jsonb_set jsonb_to_recordset
    jsonb_typeof left length lower ltrim max md5 min nextval now octet_length random regexp_replace right round
    row_number row_security_active rtrim set_config split_part starts_with statement_timestamp string_agg
    string_to_array string_to_table strpos substr sum to_char to_json to_jsonb to_regclass to_regproc to_timestamp
    transaction_timestamp translate unnest upper"""
_TYPES = "bool float4 float8 int2 int4 int8 json jsonb name oid regclass regproc text tid timestamptz xid"

FUNCTIONS = frozenset(_FUNCTIONS.split())
TYPES = frozenset(_TYPES.split())
# These operators have the precedence of "any other operator", and so does operator(...).
OPERATORS = frozenset({"||", "->", "->>", "#>", "#>>", "@>", "<@", "?", "?|", "?&"})

# Texts and comments; a type after "::"; a name before "("; a relation, or a type before its constant; an operator.
_TOKEN = re.compile(
    r"""'[^']*'|"[^"]*"|/\*[^*]*\*/|--[^\n]*|::(?P<type>[a-z]\w*)|\b(?<![.:$])(?P<name>[a-z]\w*)(?=\s*\()"""
    r"""|\b(?<![.:$])(?P<other>pg_\w+|timestamptz(?=\s'))|(?P<operator>[-<>=~!@#^&|?]+)"""
)


@lru_cache(maxsize=512)
def qualified(text: str) -> str:
    """Return the statement with the prefix ``pg_catalog`` before every name that needs it."""
    return _TOKEN.sub(_prefixed, text)


def _prefixed(found: re.Match[str]) -> str:
    kind, text = found.lastgroup, found[0]
    if kind == "name":
        return f"pg_catalog.{text}" if _is_of_the_catalog(found) else text
    if kind == "other":
        return text if text == "pg_catalog" else f"pg_catalog.{text}"
    if kind == "type" and text[2:] in TYPES:
        return f"::pg_catalog.{text[2:]}"
    return f"operator(pg_catalog.{text})" if text in OPERATORS else text


def _is_of_the_catalog(found: re.Match[str]) -> bool:
    # unnest() of several arrays is syntax, not a function; it means PostgreSQL's own unnest() and takes no prefix.
    if found[0] == "unnest":
        return not _has_several_arguments(found.string, found.end())
    return found[0] in FUNCTIONS or found[0].startswith("pg_")


def _has_several_arguments(text: str, start: int) -> bool:
    depth = 0
    for character in text[start:]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if depth == 0 and not character.isspace():
            return False
        if depth == 1 and character == ",":
            return True
    return False


def quoted(name: str) -> str:
    """Return the name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return the text as a string constant that means the same under every server setting."""
    escaped = text.replace("'", "''")
    if "\\" in escaped:
        return " E'" + escaped.replace("\\", "\\\\") + "'"
    return "'" + escaped + "'"


def table(name: str, schema: str) -> str:
    """Return a model's db_table: Django does not quote a name that is already quoted."""
    return f"{quoted(schema)}.{quoted(name)}"


@lru_cache(maxsize=512)
def statement(text: str, schema: str) -> str:
    """Return the statement with the schema in it, safe under any search_path."""
    return with_schema(qualified(text), schema)


def with_schema(text: str, schema: str) -> str:
    """Return the text with the schema in it: for :SCHEMA as an identifier, for :'SCHEMA' as a string."""
    return text.replace(":'SCHEMA'", literal(schema)).replace(":SCHEMA", quoted(schema))


@lru_cache(maxsize=64)
def ddl(filename: str, schema: str) -> str:
    """Return the text of a file of sql/ddl with the schema in it."""
    text = files(__package__).joinpath("ddl", filename).read_text(encoding="utf-8")
    return with_schema(text, schema)


# Seconds rather than an interval: a day is 24 hours here, even if the session's time zone has summer time.
MOMENT = "coalesce(%s::timestamptz, now() + %s::float8 * interval '1 second')"


def moment(run_at: datetime | timedelta | None) -> tuple[datetime | None, float | None]:
    """Return the two parameters of MOMENT: the time itself, or seconds from the database's now."""
    if isinstance(run_at, timedelta):
        return None, run_at.total_seconds()
    return run_at, None


# The argument of every function that records how jobs ended.
KEEPING = "%(keeping)s::pg_catalog.jsonb"

# A clause of a statement, for the jobs that a function of the schema ended: CALLED has their rows in a column ``job``.
# PostgreSQL does not run a clause that nothing reads, so the statement has the condition IS_RECORDED.
CALLED = "called"
RECORD_OPERATOR = f"""recorded as materialized (
            select :SCHEMA._private_record_operator(
                array(select {CALLED}.job from {CALLED}), %(outcome)s::pg_catalog.int2, {KEEPING})
        )"""
IS_RECORDED = "(select pg_catalog.count(*) from recorded) operator(pg_catalog.=) 1"

_SILENCE = """silence as materialized (
            select coalesce(current_setting('graphile_worker.notify', true), '') as before,
                   set_config('graphile_worker.notify', 'off', true) as now
        )"""
_END_OF_SILENCE = "set_config('graphile_worker.notify', silence.before, true)"


def call_statements(tag: str, columns: str, function: str, *, first: str, rest: str = "") -> dict[bool, str]:
    """Return two statements that call the function: by True with the notification of workers, by False without.

    The notification is off for this statement only: the setting is changed before the function runs, because the first
    argument of the function depends on it, and restored with the rows that the function returns.
    """
    return {
        True: f"/* gw:{tag} */ select {columns} from :SCHEMA.{function}({first}{rest}) as job",
        False: f"""/* gw:{tag} */
        with {_SILENCE}
        select {columns}, {_END_OF_SILENCE}
        from silence left join lateral
            {_silenced(function, first, rest)} as job on true""",
    }


def recorded_call_statements(tag: str, columns: str, function: str, *, first: str, rest: str = "") -> dict[bool, str]:
    """Return the statements of ``call_statements``, which also record that the function ended the jobs it returns."""
    job = f"(select ({CALLED}.job).* from {CALLED}) as job"
    return {
        True: f"""/* gw:{tag} */
        with {CALLED} as materialized (select job from :SCHEMA.{function}({first}{rest}) as job), {RECORD_OPERATOR}
        select {columns} from {job} where {IS_RECORDED}""",
        False: f"""/* gw:{tag} */
        with {_SILENCE}, {CALLED} as materialized (
            select job from silence cross join lateral {_silenced(function, first, rest)} as job
        ), {RECORD_OPERATOR}
        select {columns}, {_END_OF_SILENCE} from silence left join {job} on true where {IS_RECORDED}""",
    }


def _silenced(function: str, first: str, rest: str) -> str:
    return f":SCHEMA.{function}(case silence.now when 'off' then {first} end{rest})"
