"""The health file of a worker whose parts live, and die."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_graphile_worker import probe
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.worker.process.health import Health, reported
from tests.support.stepped_worker import Build, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def quick(payload: Any) -> None: ...


@pytest.fixture
def runner() -> Iterator[Build]:
    with stepped_workers(quick) as make:
        yield make


def test_a_part_whose_thread_died__makes_the_health_file_old(runner: Build, tmp_path: Path) -> None:
    stepped = runner.runner()
    worker = stepped.worker
    health = Health(tmp_path / "health", [stepped])
    assert health.step() == 5.0
    assert probe.problems(str(tmp_path / "health"), must_be_ready=True) == []
    (tmp_path / "health").unlink()
    worker.heartbeat._thread = threading.Thread()
    assert worker.dead() == ["heartbeat"]
    health.step()
    assert not (tmp_path / "health").exists()
    worker.heartbeat._thread = None


def test_a_health_file_in_a_directory_of_others__follows_no_link(runner: Build, tmp_path: Path) -> None:
    """Somebody who knows the name of the file, and guesses the process id, puts links in its place."""
    other, path = tmp_path / "other", tmp_path / "health"
    for link in (path, tmp_path / f".health.{os.getpid()}"):
        other.write_text("precious")
        link.unlink(missing_ok=True)
        link.symlink_to(other)
        Health(path, [runner.runner()]).write()
        assert other.read_text() == "precious"
        assert not path.is_symlink()
        assert probe.problems(str(path)) == []


def test_a_health_file_that_cannot_be_written__is_an_error_at_the_start(runner: Build, tmp_path: Path) -> None:
    with pytest.raises(
        GraphileWorkerError, match=r"^--health-file: expected a file that can be written, got '.*/no/h'"
    ):
        with reported(str(tmp_path / "no" / "h"), [runner.runner()]):
            raise AssertionError("it must not begin")
