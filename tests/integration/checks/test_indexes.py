"""The check of the indexes."""

from __future__ import annotations

import sys

import pytest
from django.core.checks import Warning  # noqa: A004 - Django's names
from django.db import connection

from django_graphile_worker.sql.install.indexes import REMEDY
from tests.integration.checks.conftest import found
from tests.support.rows import in_quotes


@pytest.mark.django_db
class TestIndexes:
    @pytest.mark.parametrize(
        ("statement", "missing", "incomplete"),
        [
            ("drop index {schema}.jobs_queued_index", "jobs_queued_index", "none"),
            (
                "update pg_index set indisvalid = false where indexrelid = '{schema}.jobs_locked_index'::regclass",
                "none",
                "jobs_locked_index",
            ),
        ],
    )
    def test_an_index_that_is_missing_or_incomplete(
        self, worker_schema: str, monkeypatch: pytest.MonkeyPatch, statement: str, missing: str, incomplete: str
    ) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(schema=in_quotes(worker_schema)))
        (warning,) = found(databases=["default"])
        assert warning == Warning(
            f"The worker schema '{worker_schema}' in the database 'default': expected all its indexes, got some "
            f"missing ({missing}) or incomplete ({incomplete}). With many jobs, finding them is slow.",
            hint=REMEDY,
            id="graphile_worker.W005",
        )
        assert '"manage.py graphile_worker repair"' in REMEDY
        monkeypatch.setattr(sys, "argv", ["manage.py", "migrate", "graphile_worker"])
        assert found(databases=["default"]) == []

    def test_indexes_are_not_missed_before_their_migrations(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"drop table {in_quotes(worker_schema)}._private_statistics")
            cursor.execute(f"drop index {in_quotes(worker_schema)}.jobs_queued_index")
        assert found(databases=["default"]) == []
