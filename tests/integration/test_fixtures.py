"""The tests' own ground: databases of a run, connections, cleaning up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_graphile_worker.models import Job
from testproject import databases
from tests.support.factories import make_job

Connect = Callable[..., psycopg.Connection[tuple[Any, ...]]]


def test_raw_connection__reaches_the_database_of_the_test(raw_connection: Connect) -> None:
    name = raw_connection().execute("select current_database()").fetchone()
    assert name == (connection.settings_dict["NAME"],)


def test_raw_connection__commits_at_once(raw_connection: Connect) -> None:
    assert raw_connection().autocommit


def test_fresh_databases__are_empty_and_apart(fresh_database: Callable[[], str]) -> None:
    first, second = fresh_database(), fresh_database()
    with psycopg.connect(first) as one, psycopg.connect(second) as two:
        one.execute("create table public.only_here ()")
        assert two.execute("select to_regclass('public.only_here')").fetchone() == (None,)
        assert two.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone() == (0,)


def test_fresh_database__is_dropped__when_somebody_is_still_connected(
    database_server: Any, raw_connection: Connect
) -> None:
    name = database_server.create_database()
    with psycopg.connect(database_server.url(name)):
        database_server.drop_database(name)
    found = raw_connection().execute("select 1 from pg_database where datname = %s", [name]).fetchone()
    assert found is None


def test_wait_until__fails__when_the_condition_never_holds(wait_until: Callable[..., None]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"within 0\.05 seconds"):
        wait_until(lambda: False, timeout=0.05)


def test_subprocess__works_on_the_test_database(subprocess_environment: dict[str, str]) -> None:
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "import psycopg, os; print(psycopg.connect(os.environ['DATABASE_URL']).info.dbname)",
        ],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == connection.settings_dict["NAME"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:p%40ss%2Fword@db.example.com:6432/shop?sslmode=require",
        "postgresql://app@/shop?host=/var/run/postgresql",
    ],
)
def test_database_url__survives_the_way_through_django_settings(url: str) -> None:
    entry = databases.from_url(url)
    assert databases.from_url(databases.to_url(entry)) == entry


def test_database_url__is_split_into_django_names() -> None:
    entry = databases.from_url("postgresql://app:secret@db.example.com:6432/shop?sslmode=require")
    assert entry == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "shop",
        "USER": "app",
        "PASSWORD": "secret",
        "HOST": "db.example.com",
        "PORT": "6432",
        "OPTIONS": {"sslmode": "require"},
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("turn", [1, 2])
def test_committed_jobs__are_gone_before_the_next_test(turn: int) -> None:
    assert not Job.objects.exists()
    make_job("left_behind", {"turn": turn}, queue_name="left", locked_by="somebody", flags={"big": True})
    assert Job.objects.get().task.identifier == "left_behind"


def test_versioned_database__is_migrated_and_of_its_version(
    server_version: int, versioned_connection: psycopg.Connection[tuple[Any, ...]], worker_schema: str
) -> None:
    version = versioned_connection.execute("select current_setting('server_version_num')::int / 10000").fetchone()
    jobs = versioned_connection.execute("select to_regclass(%s)", [f'"{worker_schema}"._private_jobs']).fetchone()
    assert version == (server_version,)
    assert jobs != (None,)


@pytest.mark.parametrize("turn", [1, 2])
def test_versioned_databases__are_apart(versioned_database: str, turn: int) -> None:
    with psycopg.connect(versioned_database) as connection:
        connection.execute("create table public.only_here ()")
