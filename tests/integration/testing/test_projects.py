"""The tests of a project, under the test runner of Django and under pytest-django, as their users run them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import sample_project
from tests.support.database_server import DatabaseServer


@pytest.fixture
def project(tmp_path: Path, database_server: DatabaseServer) -> Iterator[sample_project.Project]:
    with sample_project.open_project(tmp_path, database_server) as project:
        yield project


def test_runner_of_django__in_parallel_and_reversed(project: sample_project.Project) -> None:
    done = project.run("manage.py", "test", "--parallel", "2", "--reverse")
    assert done.returncode == 0, done.stdout
    assert "Ran 13 tests" in done.stdout
    assert "expected failures=2" in done.stdout


def test_pytest__without_migrations_in_processes_of_xdist(project: sample_project.Project) -> None:
    done = project.run("-m", "pytest", "--nomigrations", "-n", "2", "-q")
    assert done.returncode == 0, done.stdout
    assert re.search(r"13 passed, 2 xfailed", done.stdout), done.stdout


def test_pytest__with_a_database_that_is_used_again(project: sample_project.Project) -> None:
    for _ in range(2):
        done = project.run("-m", "pytest", "--reuse-db", "-q", "-p", "no:xdist")
        assert done.returncode == 0, done.stdout
        assert "13 passed, 2 xfailed" in done.stdout
