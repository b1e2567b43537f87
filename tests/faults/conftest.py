"""Fixtures of the fault tests: databases, real worker processes, and proxies and servers that fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django import DjangoDbBlocker

from testproject import databases
from tests.faults import mutants
from tests.faults.cluster import Cluster
from tests.faults.processes import Fleet, Wait, Zygote
from tests.faults.proxy import Proxy
from tests.faults.world import World
from tests.support.database_server import DatabaseServer

Migrate = Callable[[str], None]

mutants.apply(os.environ.get("FAULT_MUTANT", ""), is_in_tests=True)


def environment_for(url: str, history_url: str | None = None) -> dict[str, str]:
    """Return the environment of a worker process. Its history may use another address than its worker."""
    return os.environ | {
        "DATABASE_URL": url,
        "FAULT_HISTORY_URL": history_url or url,
        "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
    }


@pytest.fixture(scope="session")
def migrate(django_db_blocker: DjangoDbBlocker) -> Migrate:
    """A function that creates the worker schema in the database with this address."""

    def migrate(url: str) -> None:
        entry = connections.configure_settings({"default": databases.from_url(url)})["default"]
        connections.settings["fault"] = entry
        with django_db_blocker.unblock():
            call_command("migrate", "graphile_worker", database="fault", verbosity=0, skip_checks=True)
            connections["fault"].close()
        del connections["fault"], connections.settings["fault"]

    return migrate


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture(scope="session")
def fault_database(database_server: DatabaseServer, migrate: Migrate) -> Iterator[str]:
    """The address of a migrated database, which the tests of a session share."""
    name = database_server.create_database()
    url = database_server.url(name)
    migrate(url)
    yield url
    database_server.drop_database(name)


@pytest.fixture
def world(fault_database: str, worker_schema: str, wait_until: Wait) -> Iterator[World]:
    """The database of the session, emptied before the test."""
    with World.open(fault_database, worker_schema, wait_until) as world:
        mutants.apply_to_database(os.environ.get("FAULT_MUTANT", ""), world)
        yield world


@pytest.fixture
def fleet(world: World, zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    """A fleet that starts workers on the database of the world."""
    with closing(Fleet(zygote, tmp_path, environment_for(world.url), wait_until)) as fleet:
        yield fleet


@pytest.fixture
def proxy(world: World) -> Iterator[Proxy]:
    """A proxy to the database, which can break connections."""
    with Proxy(world.url) as proxy:
        yield proxy


@pytest.fixture
def proxied_fleet(world: World, proxy: Proxy, zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    """A fleet whose workers use the proxy; their history uses the database directly."""
    directory = tmp_path / "proxied"
    directory.mkdir()
    with closing(Fleet(zygote, directory, environment_for(proxy.url, world.url), wait_until)) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def scratch_cluster(migrate: Migrate) -> Iterator[Cluster]:
    """A server with a migrated database, which tests may stop and start."""
    with Cluster.create() as cluster:
        migrate(cluster.url())
        yield cluster


@pytest.fixture
def cluster(scratch_cluster: Cluster) -> Iterator[Cluster]:
    """The scratch cluster, running at the start of each test."""
    scratch_cluster.ensure_running()
    yield scratch_cluster
    scratch_cluster.ensure_running()
    scratch_cluster.reset_settings()


@pytest.fixture
def cluster_world(cluster: Cluster, worker_schema: str, wait_until: Wait) -> Iterator[World]:
    with World.open(cluster.url(), worker_schema, wait_until) as world:
        yield world


@pytest.fixture
def cluster_fleet(cluster_world: World, zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    with closing(Fleet(zygote, directory, environment_for(cluster_world.url), wait_until)) as fleet:
        yield fleet


@pytest.fixture
def start_proxy() -> Iterator[Callable[[str], Proxy]]:
    """A factory of proxies to any server."""
    started: list[Proxy] = []

    def start(url: str) -> Proxy:
        proxy = Proxy(url)
        proxy.__enter__()
        started.append(proxy)
        return proxy

    yield start
    for proxy in started:
        proxy.__exit__(None, None, None)
