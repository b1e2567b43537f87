"""Adoption of a schema that another program made: the objects of graphile-worker, and functions with other texts.

tests/node adopts a schema that the real graphile-worker made.
"""

from __future__ import annotations

import pytest
from django.db import connections

from django_graphile_worker.exceptions import SchemaError
from tests.migration.catalog import catalog
from tests.migration.conftest import Site
from tests.migration.foreign import make_foreign_schema
from tests.migration.test_install import SNAPSHOT
from tests.support.worker_sql import WorkerSql


@pytest.fixture
def foreign(worker: WorkerSql) -> WorkerSql:
    """The schema as another program leaves it, with a waiting job and a running job."""
    make_foreign_schema(worker)
    for name in ("waiting", "running"):
        worker.query("insert into {schema}._private_jobs (task_id, key, payload) values (1, %s, '[1]')", name)
    worker.lock(2)
    return worker


def test_migrate__adopts_the_schema_with_every_job(site: Site, foreign: WorkerSql) -> None:
    jobs = foreign.jobs()
    ledger = foreign.query("select * from {schema}.migrations order by id")

    site.migrate()

    assert foreign.jobs() == jobs
    assert foreign.query("select * from {schema}.migrations order by id") == ledger
    assert catalog(foreign.connection, site.schema) == SNAPSHOT.read_text(encoding="utf-8")
    assert foreign.add_job(job_key="waiting", payload=[2])["payload"] == [1, 2]


def test_migrate_to_zero__leaves_the_schema_as_it_was_found(site: Site, foreign: WorkerSql) -> None:
    foreign.query("grant execute on function {schema}.remove_job to public")
    foreign.query("comment on function {schema}.add_jobs is 'A comment of the site.'")
    before, jobs = site.dump(), foreign.jobs()

    site.migrate()
    assert site.dump() != before
    site.migrate("zero")

    assert site.dump() == before
    # No table is dropped, so waiting jobs are no obstacle.
    assert foreign.jobs() == jobs
    assert foreign.value("select obj_description(%s::regproc)", f'"{site.schema}".add_jobs') == "A comment of the site."


def test_migrate_to_zero__keeps_functions_that_were_replaced_since(site: Site, foreign: WorkerSql) -> None:
    site.migrate()
    foreign.query(
        "create or replace function {schema}.complete_jobs(job_ids bigint[]) returns setof {schema}._private_jobs"
        " language sql as $$ select * from {schema}._private_jobs where false /* newer */ $$"
    )

    site.migrate("zero")

    assert "/* newer */" in site.dump()
    assert "Not ours: 100%%" in site.dump()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "delete from {schema}.migrations where id > 19",
            r"older graphile-worker: it is at migration 19, and 20 is needed\.",
        ),
        ("delete from {schema}.migrations", r"it is at migration 0, and 20 is needed\."),
        (
            "insert into {schema}.migrations values (21, now(), true), (22, now(), false)",
            r"for Rust: its breaking migration 21 came after 20\. Upgrade django-graphile-worker",
        ),
        ("drop table {schema}._private_known_crontabs", "leaves: _private_known_crontabs"),
        (
            "create function {schema}.add_jobs(specs {schema}.job_spec[]) returns void language sql as $$ select $$",
            "In the schema .*, add_jobs have other arguments than in graphile-worker 0.18",
        ),
    ],
    ids=["ledger 19", "empty ledger", "breaking ledger", "missing table", "overload"],
)
def test_unknown_schema__is_refused_and_not_changed(site: Site, foreign: WorkerSql, change: str, message: str) -> None:
    foreign.query(change)
    before = site.dump()

    with pytest.raises(SchemaError, match=message):
        site.migrate()

    assert site.dump() == before


def test_ledger_that_does_not_mark_breaking_migrations__is_refused(site: Site, foreign: WorkerSql) -> None:
    foreign.query("delete from {schema}.migrations where id > 13")
    foreign.query("alter table {schema}.migrations drop column breaking")

    with pytest.raises(SchemaError, match=r"it is at migration 13, and 20 is needed\."):
        site.migrate()


def test_older_schema__is_refused_with_the_way_to_upgrade_it(site: Site, foreign: WorkerSql) -> None:
    foreign.query("delete from {schema}.migrations where id > 18")

    with pytest.raises(
        SchemaError, match=f"npx graphile-worker@0.18 --schema-only --schema {site.schema} --connection"
    ):
        site.migrate()


def test_newer_ledger_that_breaks_nothing__is_adopted_with_a_warning(site: Site, foreign: WorkerSql) -> None:
    foreign.query("insert into {schema}.migrations (id) values (21)")

    with pytest.warns(RuntimeWarning, match=r"at migration 21 of graphile-worker; .* supports migrations up to 20\."):
        site.migrate()

    assert foreign.add_job(job_key="waiting")["revision"] == 1


def test_role_that_does_not_own_the_schema__gets_an_error(site: Site, foreign: WorkerSql) -> None:
    role = f"gw_stranger_{foreign.connection.info.backend_pid}"
    foreign.query(f"create role {role} login")
    try:
        foreign.query(f"grant all on all tables in schema {{schema}} to {role}")
        foreign.query(f"grant all on schema {{schema}}, public to {role}")
        before = site.dump()
        connections[site.alias].settings_dict["USER"] = role
        with pytest.raises(SchemaError, match=f"database user '{role}' may not change the schema .*must be owner of"):
            site.migrate()
        connections[site.alias].close()
        assert site.dump() == before
    finally:
        foreign.query(f"drop owned by {role}")
        foreign.query(f"drop role {role}")
