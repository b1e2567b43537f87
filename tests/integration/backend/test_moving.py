"""A project moves from django-tasks-db to this backend by its setting and ``migrate``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("django_tasks_db", reason="django-tasks-db belongs to the test group")

FRAMEWORK = """
try:
    from django.tasks import task, task_backends
except ImportError:
    from django_tasks import task, task_backends
"""

TASKS = f"""{FRAMEWORK}
@task
def double(number):
    return 2 * number

@task(queue_name="emails", priority=10, takes_context=True)
async def attempt(context, to):
    return [context.attempt, to]

@task
def fail():
    raise ValueError("no such order")
"""

SETTINGS = """
import os
from importlib.util import find_spec
from testproject import databases

SECRET_KEY = "tests-only"
USE_TZ = True
INSTALLED_APPS = ["django_tasks_db", "django_graphile_worker"]
if not find_spec("django.tasks"):
    INSTALLED_APPS.insert(0, "django_tasks")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": databases.default()}
TASKS = {"default": {"BACKEND": os.environ["TASKS_BACKEND"], "QUEUES": ["default", "emails"]}}
"""

# The same code with either backend: it enqueues, runs the worker of the backend, and prints what the results say.
USE = f"""
import json, sys, django
from django.core.management import call_command
django.setup()
call_command("migrate", verbosity=0)
{FRAMEWORK}
import shop_tasks
results = [shop_tasks.double.enqueue(21), shop_tasks.attempt.enqueue("a@example.com"), shop_tasks.fail.enqueue()]
for result in results:
    assert result.status == "READY", result
call_command(*json.loads(sys.argv[1]))
told = []
for result in results:
    found = task_backends["default"].get_result(result.id)
    told.append([found.status, found.errors[0].exception_class.__name__ if found.errors else found.return_value])
print(json.dumps(told))
"""

DATABASE_BACKEND = "django_tasks_db.DatabaseBackend", ["db_worker", "--batch", "--queue-name", "*", "--no-reload"]
OURS = "django_graphile_worker.backend.GraphileWorkerBackend", ["runworker", "--once"]


@pytest.fixture
def project(tmp_path: Path, fresh_database: Callable[[], str]) -> Callable[[str, list[str]], list[list[object]]]:
    """A project with tasks: a function that uses it with a backend, and returns the status and value of each result."""
    (tmp_path / "shop_tasks.py").write_text(TASKS)
    (tmp_path / "shop_settings.py").write_text(SETTINGS)
    url = fresh_database()
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[3])])

    def use(backend: str, worker: list[str]) -> list[list[object]]:
        environment = os.environ | {
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "shop_settings",
            "TASKS_BACKEND": backend,
            "PYTHONPATH": path,
        }
        command = [sys.executable, "-c", USE, json.dumps(worker)]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told: list[list[object]] = json.loads(done.stdout.splitlines()[-1])
        return told

    return use


def test_moving__changes_the_setting_and_nothing_else(
    project: Callable[[str, list[str]], list[list[object]]],
) -> None:
    for backend, worker in (DATABASE_BACKEND, OURS):
        double, attempt, failed = project(backend, worker)
        assert double == ["SUCCESSFUL", 42]
        assert attempt == ["SUCCESSFUL", [1, "a@example.com"]]
        assert failed == ["FAILED", "ValueError"]
