from __future__ import annotations

from psycopg import sql

from django_graphile_worker.sql import statements
from django_graphile_worker.sql.statements import ddl, statement, table

HOSTILE = ['x"; drop schema public; --', "it's", "back\\slash", "%s", ":SCHEMA", "ünïcode", "Mixed"]


def test_a_statement_gets_the_schema_as_an_identifier_and_as_a_string() -> None:
    text = "select :SCHEMA.add_job(%s) /* :'SCHEMA' */ :::SCHEMA.job_spec"

    assert statement(text, "worker") == 'select "worker".add_job(%s) /* \'worker\' */ ::"worker".job_spec'


def test_no_name_ends_its_quotes() -> None:
    # The settings refuse such names already; the quotes are the second defence.
    for name in HOSTILE:
        assert statements.quoted(name) == sql.Identifier(name).as_string(None)
        assert statements.literal(name) == sql.Literal(name).as_string(None)
        assert table("jobs", name) == sql.Identifier(name, "jobs").as_string(None)


def test_a_file_is_read_with_the_schema_put_in() -> None:
    text = ddl("public_functions.sql", "worker")

    assert 'create or replace function "worker".add_job(' in text
    assert ":SCHEMA" not in text
