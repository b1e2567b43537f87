"""Workers that are started by code: settings that they cannot keep, and tests that forbid them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import SimpleTestCase

from django_graphile_worker import Worker, run_once, run_worker
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.worker import entrypoints, runner


def start_worker() -> None:
    Worker().start()


CALLS: list[Callable[[], Any]] = [run_once, run_worker, start_worker]


@pytest.fixture(autouse=True)
def nothing_gets_further(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("A worker started where no test may touch the database.")

    monkeypatch.setattr(runner.Runner, "start", start)
    monkeypatch.setattr(runner.Runner, "drain", start)
    monkeypatch.setattr(entrypoints, "shut_down", lambda *args, **kwargs: None)


@pytest.mark.parametrize("call", CALLS)
def test_without_the_mark_of_pytest_django__no_worker_starts(call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        call()


ASK = """
import sys, django, psycopg
django.setup()
psycopg.connect = lambda *arguments, **parameters: sys.exit("It asked the server.")
from django_graphile_worker.worker.entrypoints import heed_test_guards
heed_test_guards(["default"])
"""


def test_where_nobody_stands_guard__django_opens_no_connection(subprocess_environment: dict[str, str]) -> None:
    """It would wait for a silent server, where the worker has others to serve. Inside a test somebody does."""
    asked = subprocess.run([sys.executable, "-c", ASK], env=subprocess_environment, check=False, capture_output=True)
    assert (asked.returncode, asked.stderr) == (0, b"")


class Simple(SimpleTestCase):
    """A test without a database."""


@pytest.fixture
def simple_test_case() -> Iterator[None]:
    Simple.setUpClass()
    yield
    Simple.tearDownClass()
    Simple.doClassCleanups()


@pytest.mark.django_db
@pytest.mark.usefixtures("simple_test_case")
@pytest.mark.parametrize("call", CALLS)
def test_in_a_simple_test_case__no_worker_starts(call: Callable[[], Any]) -> None:
    with pytest.raises(AssertionError, match="not allowed in SimpleTestCase"):
        call()


def untyped(function: Any, **options: Any) -> Callable[[], Any]:
    """A call that a type checker would refuse."""
    return lambda: function(**options)


@pytest.mark.parametrize(
    ("call", "way_out"),
    [
        (untyped(run_once, processes=3), r"run_once\(processes=...\): expected 1, .* runworker --processes"),
        (untyped(run_worker, processes=2), r"run_worker\(processes=...\): expected 1, "),
        (untyped(Worker, processes=2), r"Worker\(processes=...\): expected 1, "),
        (untyped(Worker, max_jobs=9), r"Worker\(max_jobs=...\): expected none, as nothing replaces the process"),
        (untyped(Worker, database="default"), r"Worker\(database=...\): expected databases=\[...\]"),
        (untyped(run_once, crontab="* * * * * note"), r"run_once\(crontab=...\): .* Use run_worker\(\) or Worker"),
    ],
)
def test_settings_that_code_cannot_have_kept__are_refused_with_the_way_out(call: Any, way_out: str) -> None:
    with pytest.raises(ConfigurationError, match=way_out):
        call()
