"""Fixtures that every test may use. Tests never sleep, except in `wait_until`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import hypothesis
import psycopg
import pytest
from django.conf import settings
from django.db import connections
from django.test import TestCase, TransactionTestCase

from django_graphile_worker.registry import tasks
from testproject import databases
from tests.support import postgres_versions, prerequisites, versioned_servers
from tests.support.database_server import DatabaseServer
from tests.support.emptying import empty_tables
from tests.support.versioned_servers import VersionedServer

RawConnection = psycopg.Connection[tuple[Any, ...]]

# Seconds to wait for an event that must happen, on a slow machine. A deadline: a test that passes never waits so long.
WAIT_TIMEOUT = 60.0

# On a slow machine an example of Hypothesis may take any time. Each run has other examples.
hypothesis.settings.register_profile("few examples", max_examples=25, deadline=None)
hypothesis.settings.load_profile("few examples")

# A test that uses a fixture of these may leave committed rows behind.
COMMITTING_FIXTURES = {"transactional_db", "live_server", "raw_connection", "database_url"}

_flush_of_django = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]


def pytest_configure() -> None:
    """Handle SIGINT and SIGQUIT, also in what tests start, and stop the servers of dead runs."""
    # A background job of a shell starts with both ignored.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    if _starts_the_run():
        versioned_servers.stop_servers_of_dead_runs()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the tests that this machine cannot run, and what they need."""
    lines = list(prerequisites.missing())
    if lines:
        terminalreporter.section("skipped on this machine; `make prerequisites` installs it where it can")
        for line in lines:
            terminalreporter.line(line)


def pytest_unconfigure() -> None:
    """Stop the servers of this run."""
    if _starts_the_run():
        versioned_servers.stop_all(str(os.getpid()))


def _starts_the_run() -> bool:
    """Return whether this process started the run. The processes of xdist did not."""
    return os.environ.get("TEST_RUN_PID") == str(os.getpid())


@pytest.fixture(scope="session")
def database_server() -> Iterator[DatabaseServer]:
    """The PostgreSQL server of this run: that of DATABASE_URL, or the embedded server, started on first use."""
    databases.ensure_running()
    with DatabaseServer.open(settings.DATABASES["default"]) as server:
        if databases.is_embedded():
            server.drop_databases_of_dead_runs()
        yield server


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, database_server: DatabaseServer
) -> None:
    """Start the server before pytest-django creates its databases."""


@pytest.fixture(scope="session")
def worker_schema() -> str:
    """The name of the worker schema. The environment variable GRAPHILE_WORKER_SCHEMA changes it for a whole run."""
    return str(settings.GRAPHILE_WORKER["SCHEMA"])


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The address of the test database, for subprocesses and further connections. They see committed rows only."""
    return databases.to_url(connections["default"].settings_dict)


@pytest.fixture
def subprocess_environment(database_url: str) -> dict[str, str]:
    """The environment with which `python testproject/manage.py` uses the test database."""
    return os.environ | {"DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "testproject.settings"}


@pytest.fixture
def raw_connection(database_url: str) -> Iterator[Callable[..., RawConnection]]:
    """A factory of autocommit psycopg connections to the test database, closed at the end of the test.

    `clean_worker_tables` removes the rows that they commit to the tables of the worker, after the test.
    """
    opened: list[RawConnection] = []

    def connect(**options: object) -> RawConnection:
        connection = psycopg.connect(database_url, **({"autocommit": True} | options))  # type: ignore[arg-type]
        opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def fresh_database(database_server: DatabaseServer) -> Iterator[Callable[[], str]]:
    """A factory of empty databases, which are dropped at the end of the test. Each call returns an address."""
    made: list[str] = []

    def create() -> str:
        made.append(database_server.create_database())
        return database_server.url(made[-1])

    yield create
    for name in made:
        database_server.drop_database(name)


VERSIONS = [
    pytest.param(version, id=f"pg{version}", marks=[] if version in postgres_versions.usual() else pytest.mark.chaos)
    for version in postgres_versions.SUPPORTED
]


@pytest.fixture(scope="session", params=VERSIONS)
def server_version(request: pytest.FixtureRequest) -> int:
    """Each supported version of PostgreSQL in turn. Tests of a version that is not installed are skipped."""
    version = int(request.param)
    if postgres_versions.programs(version) is None:
        pytest.skip(postgres_versions.advice(version))
    return version


@pytest.fixture(scope="session")
def versioned_server(server_version: int) -> VersionedServer:
    """The server of a PostgreSQL version: started on first use, stopped at the end of the run."""
    programs = postgres_versions.programs(server_version)
    assert programs is not None
    return versioned_servers.ensure_running(server_version, programs)


@pytest.fixture
def versioned_database(versioned_server: VersionedServer) -> Iterator[str]:
    """The address of a migrated database that only this test uses, on each supported version of PostgreSQL.

    The test runs once for each version. Only the test itself vacuums and analyzes there.
    """
    url = versioned_server.create_database()
    yield url
    versioned_server.drop_database(url)


@pytest.fixture
def versioned_connection(versioned_database: str) -> Iterator[RawConnection]:
    """An autocommit connection to `versioned_database`."""
    with psycopg.connect(versioned_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def framework(settings: Any) -> Iterator[Any]:
    """The module of the tests' Django tasks, in a project whose default backend of Django Tasks is ours.

    The registry of tasks is empty, as in a process that has imported none of them.
    """
    settings.TASKS = {
        "default": {
            "BACKEND": "django_graphile_worker.backend.GraphileWorkerBackend",
            "QUEUES": ["default", "emails", "accounts"],
        }
    }
    # Late imports: they need models, which pytest-django loads after this module.
    from tests.support.stepped_worker import own_tasks

    with tasks.isolated():
        # The module registers its tasks when it is first imported.
        from tests.support import django_tasks

        with own_tasks():
            django_tasks.calls.clear()
            yield django_tasks


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Return a function that waits until a condition holds: `wait_until(lambda: seen)`. It fails after a timeout."""

    def wait(condition: Callable[[], object], timeout: float = WAIT_TIMEOUT) -> None:
        began = time.monotonic()
        while not condition():
            waited = time.monotonic() - began
            if waited > timeout:
                pytest.fail(f"Expected the condition to hold within {timeout} seconds, got {condition()!r}.")
            # A condition may depend on rows, processes or files, so there is no single event to wait for. After a long
            # wait, asking less often leaves more of the machine to what is waited for.
            time.sleep(0.01 if waited < 0.5 else 0.03)

    return wait


@pytest.fixture(scope="session")
def connect_to_clean(django_db_setup: None) -> Iterator[Callable[[str], RawConnection]]:
    """A connection to each test database that no test uses, because tests break theirs."""
    with ExitStack() as stack:

        @cache
        def connect(alias: str) -> RawConnection:
            url = databases.to_url(connections[alias].settings_dict)
            return stack.enter_context(psycopg.connect(url, autocommit=True, options="-c lock_timeout=60s"))

        yield connect


def pytest_runtest_setup() -> None:
    """Let Django empty its tables after a test, unless the fixture ``clean_worker_tables`` does that."""
    TransactionTestCase._fixture_teardown = _flush_of_django  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def clean_worker_tables(request: pytest.FixtureRequest, worker_schema: str) -> Iterator[None]:
    """Empty the tables after each test that commits.

    Those of the worker, because Django's flush skips unmanaged models, and those of Django, in place of its flush:
    that takes longer than most tests, because it creates all content types and permissions again.
    """
    if not _commits(request):
        yield
        return
    connect = request.getfixturevalue("connect_to_clean")
    TransactionTestCase._fixture_teardown = lambda case: None  # type: ignore[attr-defined]
    yield
    for alias in _aliases(request):
        empty_tables(connect(alias), ["public", worker_schema])


def _aliases(request: pytest.FixtureRequest) -> Iterable[str]:
    marker = request.node.get_closest_marker("django_db")
    aliases = marker.kwargs.get("databases") if marker else getattr(request.cls, "databases", None)
    return connections if aliases == "__all__" else aliases or ["default"]


def _commits(request: pytest.FixtureRequest) -> bool:
    if COMMITTING_FIXTURES & set(request.fixturenames):
        return True
    marker = request.node.get_closest_marker("django_db")
    if marker is not None and marker.kwargs.get("transaction"):
        return True
    case = request.cls
    return case is not None and issubclass(case, TransactionTestCase) and not issubclass(case, TestCase)
