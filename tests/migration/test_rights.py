"""The rights of PUBLIC in the schema: none, however the schema was made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psycopg
import pytest

from django_graphile_worker.sql.install import privileges
from tests.migration.conftest import Site
from tests.migration.foreign import make_foreign_schema
from tests.support.worker_sql import WorkerSql

FUNCTIONS = """
select p.oid::regprocedure::text as name, p.prosecdef as is_definer, has_function_privilege(%s, p.oid, 'execute') as may
from pg_proc as p where p.pronamespace = %s::regnamespace"""
RELATIONS = """
select c.oid::regclass::text as name
from pg_class as c
where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'v', 'S')
    and (c.relkind <> 'S' and has_table_privilege(%s, c.oid, 'select, insert, update, delete, truncate')
        or c.relkind = 'S' and has_sequence_privilege(%s, c.oid, 'usage, select, update'))"""


def adopt(site: Site, worker: WorkerSql) -> None:
    make_foreign_schema(worker)
    site.migrate()


def install_again(site: Site, worker: WorkerSql) -> None:
    site.migrate()
    site.migrate("zero")
    site.migrate()


@pytest.fixture
def stranger(worker: WorkerSql) -> Iterator[str]:
    """A role that may connect and has no other rights."""
    name = f"gw_stranger_{worker.connection.info.backend_pid}"
    worker.query(f"create role {name}")
    yield name
    worker.query(f"drop owned by {name}")
    worker.query(f"drop role {name}")


@pytest.mark.parametrize("way", [adopt, install_again])
def test_role_without_rights__can_neither_call_nor_read_anything(
    site: Site, worker: WorkerSql, stranger: str, way: Callable[[Site, WorkerSql], None]
) -> None:
    way(site, worker)
    schema = f'"{site.schema}"'
    functions = worker.query(FUNCTIONS, stranger, schema)
    assert len(functions) > 20
    may_use = worker.value("select has_schema_privilege(%s, %s, 'usage, create')", stranger, site.schema)
    assert not may_use, "without this right, no function in the schema can be called"
    readable = {
        str(relation["name"]).split(".")[-1] for relation in worker.query(RELATIONS, schema, stranger, stranger)
    }
    assert not readable
    # Even a role that may use the schema needs a grant for each function with the rights of its owner.
    open_to_all = [function["name"] for function in functions if function["is_definer"] and function["may"]]
    assert open_to_all == []


def test_role_without_rights__is_refused_by_each_function(site: Site, worker: WorkerSql, stranger: str) -> None:
    site.migrate()
    functions = worker.query(FUNCTIONS, stranger, f'"{site.schema}"')
    with site.connect(autocommit=True) as connection:
        connection.execute(f"set role {stranger}".encode())
        for function in functions:
            name = str(function["name"]).split("(")[0]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"select {name}()".encode())


CHANGES = [
    'update {schema}._private_installation set is_adopted = true, found_functions = \'{"add_job": "x"}\'',
    "insert into {schema}._private_installation (part) values ('planted')",
    "delete from {schema}._private_installation",
]


def test_worker_role__cannot_write_what_migrating_to_zero_runs(site: Site, worker: WorkerSql, stranger: str) -> None:
    """Stored texts of functions run with the rights of the migrating role. The second grant is an example of a site."""
    site.migrate()
    before = worker.query("select * from {schema}._private_installation order by part")
    grants = privileges.grants_script("worker", stranger, schema=site.schema)
    for grant in (grants, f"grant all on all tables in schema {{schema}} to {stranger}"):
        worker.query(grant)
        with site.connect(autocommit=True) as connection:
            theirs = WorkerSql(connection, site.schema)
            theirs.query(f"set role {stranger}")
            for change in CHANGES:
                with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                    theirs.query(change)
                assert len(theirs.query("select * from {schema}._private_installation")) == len(before)
        assert worker.query("select * from {schema}._private_installation order by part") == before


@pytest.mark.parametrize(("kind", "rights"), [("viewer", "select"), ("worker", "select, update")])
def test_role_of_an_adopted_schema__gets_the_same_rights_to_our_tables(
    site: Site, worker: WorkerSql, stranger: str, kind: str, rights: str
) -> None:
    """A role that only reads jobs changes nothing in our tables."""
    make_foreign_schema(worker)
    worker.query(f"grant {rights} on {{schema}}._private_jobs to {stranger}")
    site.migrate()
    writable = worker.query(
        "select c.relname as name from pg_class as c"
        " where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'p')"
        " and has_table_privilege(%s, c.oid, 'insert, update, delete')", f'"{site.schema}"', stranger
    )  # fmt: skip
    found = {str(row["name"]) for row in writable} - {"_private_jobs"}
    new = {"_private_actions", "_private_action_steps", "_private_events"}
    assert found & new == (new if kind == "worker" else set())
    assert kind == "worker" or found == set()
