"""Roles to which row-level security shows empty tables get an error."""

from __future__ import annotations

import pytest

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.sql.install import catalog, privileges
from tests.support.worker_sql import WorkerSql

pytestmark = pytest.mark.django_db(transaction=True)


class TestARoleThatRowLevelSecurityBlinds:
    @pytest.fixture(autouse=True)
    def rights(self, owner: WorkerSql, role: str) -> None:
        owner.query(f"grant usage on schema {{schema}} to {role}")
        owner.query(f"grant all on all tables in schema {{schema}} to {role}")

    def test_gets_an_error(self, owner: WorkerSql, role: str, as_role: WorkerSql) -> None:
        owner.add_job()
        assert as_role.jobs() == []

        with as_role.connection.cursor() as cursor:
            assert privileges.hidden_tables(cursor, schema=owner.schema) == (
                role,
                ("_private_job_queues", "_private_jobs", "_private_tasks"),
            )
            with pytest.raises(SchemaError, match=f"^Row-level security hides .* from the role '{role}'"):
                catalog.check_usable(cursor, schema=owner.schema)

    def test_gets_an_error__when_the_policies_are_for_other_roles(
        self, owner: WorkerSql, role: str, as_role: WorkerSql
    ) -> None:
        other = f"{role}_other"
        owner.query(f"create role {other}")
        try:
            for table in ("_private_jobs", "_private_tasks", "_private_job_queues"):
                owner.query(f"create policy others on {{schema}}.{table} to {other} using (true)")
                owner.query(f"create policy writers on {{schema}}.{table} for insert to {role} with check (true)")

            with as_role.connection.cursor() as cursor:
                assert len(privileges.hidden_tables(cursor, schema=owner.schema)[1]) == 3
                owner.query(f"grant {other} to {role}")
                assert privileges.hidden_tables(cursor, schema=owner.schema)[1] == ()
        finally:
            owner.query(f"drop owned by {other}")
            owner.query(f"drop role {other}")
