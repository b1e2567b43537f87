"""python -m django_graphile_worker.probe: a container's look at its worker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from django_graphile_worker import probe


def write(path: Path, *, age: float = 0.0, **content: Any) -> str:
    facts = {"written_at": time.time() - age, "valid_seconds": 60.0, "is_ready": True}
    path.write_text(json.dumps(facts | content))
    return str(path)


def test_young_file__is_a_sound_worker(tmp_path: Path) -> None:
    path = write(tmp_path / "health")
    assert probe.main([path]) == 0
    assert probe.main(["--ready", path]) == 0


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"age": 3600.0}, "is 3600 s old, more than 60 s: the worker hangs, or has ended"),
        ({"is_ready": False}, "the worker waits for its database"),
        ({"written_at": None}, "Cannot read "),
    ],
)
def test_any_other_file__is_a_complaint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: dict[str, Any], complaint: str
) -> None:
    path = write(tmp_path / "health", **content)
    assert probe.main(["--ready", path]) == 1
    error = capsys.readouterr().err
    assert complaint in error
    assert path in error


def test_no_file__is_a_complaint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main([str(tmp_path / "health")]) == 1
    assert "no worker runs with --health-file" in capsys.readouterr().err


def test_half_a_file__is_a_complaint(tmp_path: Path) -> None:
    (tmp_path / "health").write_text('{"written_at": 17')
    assert probe.main([str(tmp_path / "health")]) == 1


def test_of_several_processes__each_must_be_sound(tmp_path: Path) -> None:
    path = str(tmp_path / "health")
    write(tmp_path / "health.0")
    write(tmp_path / "health.1")
    assert probe.main([path]) == 0
    write(tmp_path / "health.1", age=61.0)
    assert probe.main([path]) == 1


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--help"]])
def test_other_arguments__are_told_how_it_is_used(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main(arguments) == 2
    assert capsys.readouterr().err == f"{probe.USAGE}\n"


def test_probe__loads_neither_django_nor_the_worker(tmp_path: Path) -> None:
    path = write(tmp_path / "health")
    command = [sys.executable, "-X", "importtime", "-m", "django_graphile_worker.probe", path]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "django_graphile_worker" in loaded
    assert not re.search(r"\b(django|psycopg|asyncio|logging|django_graphile_worker\.\w+)$", loaded, re.MULTILINE)
