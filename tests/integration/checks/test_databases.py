"""Checks of the databases as they are configured."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import Error, Warning  # noqa: A004 - Django's names
from django.db import connection, connections

from django_graphile_worker.checks import databases
from tests.integration.checks.conftest import found


class AllElsewhere:
    def db_for_write(self, model: type[Any], **hints: Any) -> str | None:
        return "other"

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == "default"


class TestEngine:
    def test_an_alias_that_is_missing(self, configure: Any) -> None:
        configure(DATABASE="queue")
        assert found() == [
            Error(
                "The database for jobs: expected an alias of settings.DATABASES ('default', 'other'), got 'queue'.",
                hint='Set GRAPHILE_WORKER["DATABASE"] to one of these aliases, or correct DATABASE_ROUTERS.',
                id="graphile_worker.E004",
            )
        ]

    def test_an_engine_that_is_not_postgresql(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "vendor", "sqlite")
        monkeypatch.setitem(connections.settings["default"], "ENGINE", "django.db.backends.sqlite3")
        assert found() == [
            Error(
                "The database for jobs, 'default': expected the engine 'django.db.backends.postgresql', got "
                "'django.db.backends.sqlite3'.",
                hint='Jobs are stored in PostgreSQL. Set GRAPHILE_WORKER["DATABASE"] to the alias of a PostgreSQL '
                "database.",
                id="graphile_worker.E005",
            )
        ]


class TestPsycopg:
    @pytest.mark.parametrize(
        ("version", "message", "identifier"),
        [
            (
                None,
                "psycopg 3.2.10 or newer is not installed. psycopg 2 cannot run the worker.",
                "graphile_worker.E006",
            ),
            (
                (3, 2, 9),
                "psycopg 3.2.9 leaks memory while it listens; 3.2.10 or newer is needed.",
                "graphile_worker.E007",
            ),
        ],
    )
    def test_psycopg(self, version: Any, message: str, identifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(databases, "psycopg_version", lambda: version)
        hint = "Install it: python -m pip install 'psycopg[binary]>=3.2.10'"
        assert found() == [Error(message, hint=hint, id=identifier)]


class TestRouters:
    def test_routers_that_disagree_with_themselves(self, settings: Any) -> None:
        settings.DATABASE_ROUTERS = [f"{__name__}.AllElsewhere"]
        assert found() == [
            Error(
                "The database routers send jobs to 'other', but their allow_migrate() refuses the app "
                "'graphile_worker' there.",
                hint="Make allow_migrate() and db_for_write() of the routers agree on this app.",
                id="graphile_worker.E014",
            )
        ]

    def test_routers_that_disagree_with_the_setting(
        self, settings: Any, configure: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.DATABASE_ROUTERS = [f"{__name__}.AllElsewhere"]
        monkeypatch.setattr(AllElsewhere, "allow_migrate", lambda *args, **kwargs: True)
        monkeypatch.setitem(connections.settings, "third", connections.settings["other"])
        configure(DATABASE="third")
        assert found() == [
            Warning(
                "The database routers send jobs to 'other', but GRAPHILE_WORKER[\"DATABASE\"] is 'third'.",
                hint="The routers take precedence. Make the routers and the setting name the same database.",
                id="graphile_worker.W003",
            )
        ]


class TestPool:
    @pytest.mark.parametrize(
        ("pool", "size"),
        [(True, 4), ({"max_size": 9}, 9), ({"min_size": 2}, 2), ({"max_size": 10}, None), (False, None)],
    )
    def test_a_pool_that_is_too_small(self, pool: Any, size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": pool})
        warning = Warning(
            f"The connection pool of the database 'default' has {size} connections, fewer than jobs run at the same "
            "time (10).",
            hint='Raise OPTIONS["pool"]["max_size"], or lower GRAPHILE_WORKER["CONCURRENCY"].',
            id="graphile_worker.W002",
        )
        assert found() == ([warning] if size else [])


@pytest.mark.django_db
class TestInstallation:
    def test_databases_are_queried_only_on_request(self, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(0):
            found()
            found(databases=["other"])

    def test_an_unreachable_database_is_left_to_django(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from django.db import OperationalError

        def refuse(*args: Any) -> Any:
            raise OperationalError("connection refused")

        monkeypatch.setattr(connection, "cursor", refuse)
        assert found(databases=["default"]) == []
