"""Checks of a worker schema in its database."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from django.core.checks import Error, Warning  # noqa: A004 - Django's names
from django.core.management import call_command
from django.db import connection

from django_graphile_worker import add_job
from tests.integration.checks.conftest import found
from tests.support.rows import in_quotes


@pytest.mark.django_db
class TestSchema:
    def test_an_installed_schema(self) -> None:
        assert found(databases=["default"]) == []

    def test_a_schema_that_is_not_installed(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"drop schema {in_quotes(worker_schema)} cascade")
            cursor.execute("delete from django_migrations where app = 'graphile_worker'")
        assert found(databases=["default"]) == [
            Warning(
                f"The database 'default' has no worker schema '{worker_schema}', or an incomplete one. "
                'Run "manage.py migrate graphile_worker". If the schema was dropped or renamed after a migrate, '
                '"manage.py check --database default" says what to do.',
                hint="Jobs can be added and run once the app is migrated.",
                id="graphile_worker.W001",
            )
        ]

    def test_a_server_that_is_too_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "pg_version", 140_012)
        (error,) = found(databases=["default"])
        assert (error.id, error.msg) == (
            "graphile_worker.E024",
            "The database 'default' is PostgreSQL 14. Jobs need PostgreSQL 15 or newer.",
        )

    def test_a_schema_that_is_about_to_be_installed(self, worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"drop schema {in_quotes(worker_schema)} cascade")
            cursor.execute("delete from django_migrations where app = 'graphile_worker'")
        monkeypatch.setattr(sys, "argv", ["manage.py", "migrate", "--no-input"])
        assert found(databases=["default"]) == []

    def test_a_schema_that_was_renamed_after_migrate(self, configure: Any) -> None:
        configure(SCHEMA="renamed")
        assert found(databases=["default"]) == [
            Error(
                "The app 'graphile_worker' is migrated in the database 'default': expected the worker "
                "schema 'renamed', got none, or an incomplete one.",
                hint='To create an empty one, after DROP SCHEMA or under a new name: run "manage.py migrate '
                'graphile_worker zero --fake", then "manage.py migrate graphile_worker". If GRAPHILE_WORKER["SCHEMA"] '
                "was changed, the old schema stays, with its jobs; to keep on using it, change the setting back.",
                id="graphile_worker.E016",
            )
        ]

    def test_the_advice_after_a_changed_schema_name_works(
        self, configure: Any, worker_schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = add_job("stays")
        configure(SCHEMA="renamed")
        for advice in (["migrate", "graphile_worker", "zero", "--fake"], ["migrate", "graphile_worker"]):
            monkeypatch.setattr(sys, "argv", ["manage.py", *advice])
            call_command(*advice, verbosity=0, skip_checks=False)
        assert found(databases=["default"]) == []
        assert add_job("new").id == 1
        with connection.cursor() as cursor:
            cursor.execute(f"select id from {in_quotes(worker_schema)}._private_jobs")
            assert cursor.fetchall() == [(job.id,)]
