"""``runworker --reload``: new code without a restart by hand, and no job left behind on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_graphile_worker import add_job

TASK = """
from django_graphile_worker import task

@task
def tell(payload):
    print("I am {name}", flush=True)
"""
SETTINGS = """
from testproject.settings import *
INSTALLED_APPS = [*INSTALLED_APPS, "reloaded"]
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    package = tmp_path / "reloaded"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text(TASK.format(name="old"))
    (tmp_path / "reload_settings.py").write_text(SETTINGS)
    return tmp_path


@pytest.fixture
def output(app: Path, subprocess_environment: dict[str, str]) -> Iterator[Callable[[], str]]:
    log = app / "output"
    environment = subprocess_environment | {
        "DJANGO_SETTINGS_MODULE": "reload_settings",
        "PYTHONPATH": os.pathsep.join([str(app), str(Path(__file__).parents[2])]),
    }
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "django", "runworker", "--reload", "--no-cron"],
            env=environment,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        yield log.read_text
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)


@pytest.mark.django_db(transaction=True)
def test_new_code_is_picked_up_and_the_old_worker_leaves_nothing(
    app: Path, output: Callable[[], str], wait_until: Callable[..., None], raw_connection: Any, worker_schema: str
) -> None:
    add_job("tell")
    wait_until(lambda: "I am old" in output(), timeout=60)
    tasks = app / "reloaded" / "tasks.py"
    tasks.write_text(TASK.format(name="new"))

    def has_restarted() -> bool:
        # The reloader may only now be taking its first look: the file goes on being new.
        later = tasks.stat().st_mtime + 1
        os.utime(tasks, (later, later))
        return output().count(" started on ") > 1

    wait_until(has_restarted, timeout=60)
    add_job("tell")
    wait_until(lambda: "I am new" in output(), timeout=60)
    connection = raw_connection()

    def registered() -> int:
        found = connection.execute(f'select count(*) from "{worker_schema}"._private_workers'.encode()).fetchone()
        return int(found[0])

    wait_until(lambda: registered() == 1)
