"""A small Django project with tests of its own, which test runners run in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tests.docs.pages import page
from tests.support.database_server import DatabaseServer

CHECKOUT = Path(__file__).resolve().parents[2]

FILES = {
    "manage.py": """
        import os, sys
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
        from django.core.management import execute_from_command_line
        execute_from_command_line(sys.argv)
    """,
    "site_settings.py": """
        import os
        from testproject import databases

        SECRET_KEY = "tests-only"
        USE_TZ = True
        DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
        INSTALLED_APPS = ["django_graphile_worker", "shop"]
        DATABASES = {
            "default": databases.default() | {"TEST": {"NAME": os.environ["SAMPLE_DATABASE"], "TEMPLATE": "template0"}}
        }
    """,
    "shop/__init__.py": "",
    "shop/models.py": """
        from django.db import models
        from django.utils import timezone

        class Order(models.Model):
            customer = models.CharField(max_length=100)
            placed_at = models.DateTimeField(default=timezone.now)
            paid = models.BooleanField(default=False)
            receipts = models.IntegerField(default=0)
            reminded_at = models.DateTimeField(null=True)
    """,
    "shop/test_isolation.py": """
        from unittest import expectedFailure
        from django.test import TestCase, TransactionTestCase
        from django.utils import timezone
        from django_graphile_worker import add_job, models, simulation
        from django_graphile_worker.testing import clock, immediate, jobs, run_jobs
        from shop.models import Order
        from shop.orders import place_order

        class Clean:
            # Each test would find what another has left.
            def setUp(self):
                assert jobs() == []
                assert not Order.objects.exists() and not models.KnownCrontab.objects.exists()
                assert simulation.now is None and not simulation.is_immediate

            def test_one(self):
                place_order("Ann")
                assert len(run_jobs()) == 1

            def test_another(self):
                place_order("Ann")
                with clock() as now:
                    now.advance(days=1)
                    assert len(run_jobs()) == 2

            @expectedFailure
            def test_that_fails_in_the_middle(self):
                with clock() as now, immediate():
                    now.advance(days=1)
                    place_order("Ann")
                    add_job("send_receipt", {"order": 0})

        class InTransaction(Clean, TestCase):
            pass

        class Committing(Clean, TransactionTestCase):
            pass
    """,
    "shop/test_results.py": """
        from datetime import timedelta
        from django.test import TestCase, TransactionTestCase
        from django_graphile_worker import UnknownResultError, task, wait_for_result
        from django_graphile_worker.testing import immediate, run_jobs

        @task(keep_result=timedelta(hours=1))
        def add_up(payload):
            return sum(payload)

        @task
        def forget(payload):
            pass

        # The sessions of these waits must not keep the runner from dropping its databases.
        class Results:
            def test_result_of_run_jobs(self):
                job = add_up.add_job([1, 2])
                run_jobs()
                assert wait_for_result(job, timeout=60).value == 3

            def test_result_under_immediate(self):
                with immediate():
                    job = add_up.add_job([3, 4])
                    assert wait_for_result(job, timeout=60).value == 7

            def test_result_that_is_not_kept(self):
                job = forget.add_job({})
                run_jobs()
                with self.assertRaisesMessage(UnknownResultError, "declare its task with @task(keep_result="):
                    wait_for_result(job, timeout=60)

        class ResultsInTransaction(Results, TestCase):
            pass

        class ResultsCommitting(Results, TransactionTestCase):
            pass
    """,
    "pytest.ini": """
        [pytest]
        DJANGO_SETTINGS_MODULE = site_settings
        python_files = tests.py test_*.py
        addopts =
            -p pytest_django.plugin -p xdist.plugin -p no:cacheprovider
            -p django_graphile_worker.pytest_plugin
        filterwarnings = error
    """,
}


def of_the_guide() -> dict[str, str]:
    """Return the files whose parts the guide to testing shows: the first line of each part names its file."""
    files: dict[str, str] = {}
    for block in re.findall(r"```python\n(.*?)```", page("guides/testing.md"), flags=re.DOTALL):
        first, _, rest = block.partition("\n")
        assert first.startswith("# shop/"), first
        name = first.removeprefix("# ")
        files[name] = files.get(name, "") + rest + "\n\n"
    return files


@dataclass(frozen=True)
class Project:
    """The files of the project in a folder, and the prefix of the names of its databases."""

    folder: Path
    database: str

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Python in the project; the output is that of both streams."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DJANGO_"))}
        environment |= {
            "SAMPLE_DATABASE": self.database,
            "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{self.folder}",
            # The plugins of this checkout take longer to load than the tests take.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )


@contextmanager
def open_project(folder: Path, server: DatabaseServer) -> Iterator[Project]:
    """Write the files of the project; at the end drop its databases."""
    files = {name: dedent(text) for name, text in FILES.items()} | of_the_guide()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    prefix = f"test_{os.environ['TEST_RUN_PID']}_sample_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    yield Project(folder, prefix)
    found = server.connection.execute("select datname from pg_database where starts_with(datname, %s)", [prefix])
    for (name,) in found.fetchall():
        server.drop_database(name)
