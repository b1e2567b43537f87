"""The reference of the SQL functions names what the catalog has: no more, no less."""

from __future__ import annotations

import re
from pathlib import Path

from django_graphile_worker import sql
from django_graphile_worker.sql.install import catalog
from tests.docs.pages import headings, page
from tests.support.worker_sql import WorkerSql

REFERENCE = page("reference/sql.md")
DDL = Path(sql.__file__).parent / "ddl"


def test_every_function_has_its_section(worker: WorkerSql) -> None:
    assert sorted(headings(REFERENCE)) == sorted(catalog.FUNCTIONS)


def test_signatures_equal_the_catalog(worker: WorkerSql) -> None:
    documented = {}
    for name, arguments in re.findall(r"^graphile_worker\.(\w+)\((.*?)\) returns", REFERENCE, re.DOTALL | re.MULTILINE):
        stripped = re.sub(r"--.*", "", arguments)
        documented[name] = re.sub(r"\s+", " ", stripped).strip()

    rows = worker.query(
        "select proname, pg_get_function_arguments(oid) as arguments from pg_proc"
        " where pronamespace = %s::regnamespace and proname = any(%s)",
        f'"{worker.schema}"',
        list(catalog.FUNCTIONS),
    )
    assert documented == {row["proname"]: as_documented(row["arguments"], worker.schema) for row in rows}


def as_documented(arguments: str, schema: str) -> str:
    text = re.sub(r"(NULL|'replace')::[a-z \[\]]+?(?=,|$)", r"\1", arguments)
    text = text.replace("timestamp with time zone", "timestamptz").replace("NULL", "null").replace("DEFAULT", "default")
    return text.replace(f'"{schema}"', "graphile_worker").replace(f"{schema}.", "graphile_worker.")


def test_the_error_codes_equal_what_the_functions_raise() -> None:
    raised = {code for path in DDL.glob("job_rules.sql") for code in re.findall(r"'(GWB\w\w)'", path.read_text())}

    assert set(re.findall(r"^\| `(GWB\w\w)` \|", REFERENCE, re.MULTILINE)) == raised
