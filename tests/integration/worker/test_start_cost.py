"""From ``manage.py runworker`` to the first job: what is done by then, and what can wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection

from django_graphile_worker import add_job
from django_graphile_worker.worker.fetching.fetcher import Fetcher
from django_graphile_worker.worker.service import Service
from tests.support import records
from tests.support.stepped_worker import build, own_tasks

SETTINGS = """
import os
from testproject import databases

SECRET_KEY = "tests-only"
USE_TZ = True
INSTALLED_APPS = ["django_graphile_worker", "first"]
DATABASES = {"default": databases.default()}
GRAPHILE_WORKER = {"SCHEMA": os.environ.get("GRAPHILE_WORKER_SCHEMA", "graphile_worker")}
"""
TASKS = """
import json, sys
from pathlib import Path
from django_graphile_worker import task

@task
def tell_modules(payload):
    Path(payload["file"]).write_text(json.dumps(sorted(sys.modules)))

@task
def add_another(payload):
    assert "django_graphile_worker.api" not in sys.modules
    tell_modules.add_job(payload)
"""
WorkerRun = Callable[..., set[str]]


@pytest.fixture
def modules_of_first_job(tmp_path: Path, subprocess_environment: dict[str, str]) -> WorkerRun:
    """Run a worker for one job that tells which modules are loaded."""
    app = tmp_path / "first"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "tasks.py").write_text(TASKS)

    def run(task: str = "tell_modules", settings: str = "") -> set[str]:
        (tmp_path / "first_settings.py").write_text(SETTINGS + settings)
        told = tmp_path / "modules.json"
        add_job(task, {"file": str(told)})
        environment = subprocess_environment | {
            "DJANGO_SETTINGS_MODULE": "first_settings",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])]),
        }
        command = [sys.executable, "-m", "django", "runworker", "--once"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return set(json.loads(told.read_text()))

    return run


@pytest.mark.django_db(transaction=True)
def test_the_part_that_claims_starts_before_those_that_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, float] = {}
    for kind in (Service, Fetcher):
        monkeypatch.setattr(kind, "start", lambda service, after=0.0: started.setdefault(service.name, after))
    with own_tasks() as registry:
        runner = build(registry)
        runner.start()
        # The first step of the releaser, on its thread, opens its session: the first claim does not wait for that.
        sessions = [runner.parts.release_database.current]
        runner.parts.releaser.step()
        sessions.append(runner.parts.release_database.current)
        runner.close()
    assert [session is not None for session in sessions] == [False, True]
    assert next(iter(started)) == "fetcher"
    assert {"signal-sender", "releaser", "heartbeat", "recovery"} <= set(started)
    # Only the recovery can wait even until the first jobs have run.
    assert [name for name, after in started.items() if after] == ["recovery"]


@pytest.mark.django_db(transaction=True)
def test_the_day_of_the_history_is_there_before_the_first_job_is_claimed(
    monkeypatch: pytest.MonkeyPatch, worker_schema: str
) -> None:
    """A row that is on its way into the default partition is refused when the day comes into being."""
    days: list[bool] = []

    def note_day(fetcher: Fetcher) -> None:
        with connection.cursor() as cursor:
            table = f'"{worker_schema}"._private_history_{datetime.now(UTC):%Y%m%d}'
            cursor.execute("select to_regclass(%s) is not null", [table])
            days.extend(cursor.fetchone() or ())

    monkeypatch.setattr(Service, "start", lambda service, **options: None)
    monkeypatch.setattr(Fetcher, "start", note_day)
    with own_tasks() as registry:
        runner = build(registry, history=timedelta(days=1))
        runner.start()
        runner.close()
    records.drop_days(worker_schema)
    assert days[0]


@pytest.mark.django_db(transaction=True)
def test_a_task_that_adds_a_job_loads_what_that_takes(modules_of_first_job: WorkerRun) -> None:
    assert "django_graphile_worker.api" in modules_of_first_job("add_another")
