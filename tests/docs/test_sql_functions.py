"""The reference of the SQL functions has a section for each function, with its signature in the database."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from django_graphile_worker import sql
from django_graphile_worker.sql.install import catalog
from tests.docs.pages import headings, page
from tests.support.rows import in_quotes, query

REFERENCE = page("reference/sql.md")
DDL = Path(sql.__file__).parent / "ddl"


def test_sections__are_those_of_the_functions_in_the_catalog() -> None:
    assert sorted(headings(REFERENCE)) == sorted(catalog.FUNCTIONS)


@pytest.mark.django_db
def test_signatures__equal_those_of_the_database(worker_schema: str) -> None:
    documented = {}
    for name, arguments in re.findall(r"^graphile_worker\.(\w+)\((.*?)\) returns", REFERENCE, re.DOTALL | re.MULTILINE):
        stripped = re.sub(r"--.*", "", arguments)
        documented[name] = re.sub(r"\s+", " ", stripped).strip()

    rows = query(
        "select proname, pg_get_function_arguments(oid) from pg_proc"
        " where pronamespace = %s::regnamespace and proname = any(%s)",
        in_quotes(worker_schema),
        list(catalog.FUNCTIONS),
    )
    assert documented == {name: as_documented(arguments, worker_schema) for name, arguments in rows}


def as_documented(arguments: str, schema: str) -> str:
    text = re.sub(r"(NULL|'replace')::[a-z \[\]]+?(?=,|$)", r"\1", arguments)
    text = text.replace("timestamp with time zone", "timestamptz").replace("NULL", "null").replace("DEFAULT", "default")
    return text.replace(f'"{schema}"', "graphile_worker").replace(f"{schema}.", "graphile_worker.")


def test_error_codes__are_those_that_the_functions_raise() -> None:
    raised = {code for path in DDL.glob("adding.sql") for code in re.findall(r"'(GWB\w\w)'", path.read_text())}

    assert set(re.findall(r"^\| `(GWB\w\w)` \|", REFERENCE, re.MULTILINE)) == raised
