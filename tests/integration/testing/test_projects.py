"""The tests of a project, and the examples of the guide, under the test runner of Django and under pytest-django."""

from __future__ import annotations

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
    assert "expected failures=2" in done.stdout
    assert "Ran 24 tests" in done.stdout


@pytest.mark.chaos
def test_pytest__in_processes_of_xdist_without_migrations_and_with_databases_that_are_used_again(
    project: sample_project.Project,
) -> None:
    for selected in ("Committing", ""):
        done = project.run("-m", "pytest", "--nomigrations", "--reuse-db", "-n", "2", "-q", "-k", selected)
        assert done.returncode == 0, done.stdout
    assert "24 passed, 2 xfailed" in done.stdout
