"""The check of what a role sees."""

from __future__ import annotations

import pytest
from django.core.checks import Error
from django.db import connection

from tests.integration.checks.conftest import found
from tests.support.rows import in_quotes


@pytest.mark.django_db
class TestRowSecurity:
    def test_a_role_that_sees_nothing(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("create role blind_role")
            cursor.execute("set local role blind_role")
        assert found(databases=["default"]) == [
            Error(
                f"Expected a role that may use the worker schema '{worker_schema}' in the database 'default', got "
                "'blind_role', for which _private_job_queues, _private_jobs, _private_tasks appear empty. Row-level "
                "security hides its tables from every role but their owner: connect as the owner, or let the owner run "
                'the SQL that "manage.py graphile_worker grants <role>" prints; --kind worker is for workers.',
                hint='"manage.py graphile_worker grants blind_role --kind worker" prints the SQL for a role that runs '
                "jobs.",
                id="graphile_worker.E015",
            )
        ]

    @pytest.mark.parametrize(
        ("policy", "is_blind"),
        [
            ("to seeing_role using (true)", False),
            ("to public using (true)", False),
            ("for select to group_role using (true)", False),
            ("for insert to seeing_role with check (true)", True),
            ("to another_role using (true)", True),
        ],
    )
    def test_a_role_sees_by_policies_of_its_own(self, policy: str, is_blind: bool, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("create role group_role; create role another_role")
            cursor.execute("create role seeing_role in role group_role")
            for table in ("_private_jobs", "_private_job_queues", "_private_tasks"):
                cursor.execute(f"create policy seen on {in_quotes(worker_schema)}.{table} {policy}")
            cursor.execute("set local role seeing_role")
        expected = ["graphile_worker.E015"] if is_blind else []
        assert [message.id for message in found(databases=["default"])] == expected
