"""The name of the worker schema in statements: ``statement`` prepares each text before it is sent."""

from __future__ import annotations

from functools import lru_cache

from django_graphile_worker.sql.search_path import qualified


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
    # Late import: only migrations and grants read files, and it takes 2 ms.
    from importlib.resources import files

    text = files(__package__).joinpath("ddl", filename).read_text(encoding="utf-8")
    return with_schema(text, schema)
