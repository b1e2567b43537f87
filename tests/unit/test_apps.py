"""The app's start: what it does to a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

START = """
import sys
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_graphile_worker", "vendor", "shop"],
    GRAPHILE_WORKER={"EXCLUDE_TASK_MODULES": sys.argv[1:]},
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "nothing"}},
)
django.setup()
from django_graphile_worker.registry import tasks
print(tasks.identifiers())
"""


def start(directory: Path, *excluded: str) -> subprocess.CompletedProcess[str]:
    for app, source in {
        "vendor": "import celery_of_the_vendor",
        "shop": "from django_graphile_worker import task\n@task\ndef send(payload): ...",
    }.items():
        (directory / app).mkdir()
        (directory / app / "__init__.py").touch()
        (directory / app / "tasks.py").write_text(source)
    command = [sys.executable, "-c", START, *excluded]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_tasks_module_that_fails__the_error_says_why_it_was_imported(tmp_path: Path) -> None:
    failed = start(tmp_path)
    assert failed.returncode == 1
    assert "No module named 'celery_of_the_vendor'" in failed.stderr
    assert "django-graphile-worker imported vendor.tasks: it imports the module 'tasks' of each" in failed.stderr
    assert 'GRAPHILE_WORKER["EXCLUDE_TASK_MODULES"] = ["vendor.tasks"]' in failed.stderr


def test_tasks_module_that_is_excluded__is_not_imported(tmp_path: Path) -> None:
    started = start(tmp_path, "vendor.tasks")
    assert (started.returncode, started.stdout) == (0, "('send',)\n"), started.stderr
