"""How statements learn the name of the worker schema."""

from __future__ import annotations

from functools import lru_cache

from django_graphile_worker.sql.qualification import qualified


def quoted(name: str) -> str:
    """Return the name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return the text as a string constant that no server setting can read otherwise."""
    escaped = text.replace("'", "''")
    if "\\" in escaped:
        return " E'" + escaped.replace("\\", "\\\\") + "'"
    return "'" + escaped + "'"


def table(name: str, schema: str) -> str:
    """Return a model's db_table: Django leaves a name that is already quoted alone."""
    return f"{quoted(schema)}.{quoted(name)}"


@lru_cache(maxsize=512)
def statement(text: str, schema: str) -> str:
    """Make a statement safe under any search_path, and put the schema into it."""
    return with_schema(qualified(text), schema)


def with_schema(text: str, schema: str) -> str:
    """Put the schema into a text: :SCHEMA as an identifier, :'SCHEMA' as a string."""
    return text.replace(":'SCHEMA'", literal(schema)).replace(":SCHEMA", quoted(schema))


@lru_cache(maxsize=64)
def ddl(filename: str, schema: str) -> str:
    """Return a file of sql/ddl with the schema put in."""
    # Here, as only migrations come by: it costs every start 2 ms.
    from importlib.resources import files

    text = files(__package__).joinpath("ddl", filename).read_text(encoding="utf-8")
    return with_schema(text, schema)
