"""A small Django project with tests of its own, which test runners run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

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
        INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_graphile_worker", "shop"]
        PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
        NAME = os.environ["SAMPLE_DATABASE"]
        DATABASES = {
            alias: databases.default() | {"TEST": {"NAME": f"{NAME}_{alias}", "TEMPLATE": "template0"}}
            for alias in ("default", "other")
        }
    """,
    "shop/__init__.py": "",
    "shop/tasks.py": """
        from django.contrib.auth.models import User
        from django_graphile_worker import task

        @task
        def welcome(payload):
            User.objects.create(username=payload["name"])

        @task
        async def awelcome(payload):
            await User.objects.acreate(username=payload["name"])

        @task(cron="0 4 * * *")
        def nightly(payload):
            pass
    """,
    "shop/tests.py": """
        from unittest import expectedFailure
        from django.contrib.auth.models import User
        from django.db import transaction
        from django.test import TestCase, TransactionTestCase
        from django.utils import timezone
        from django_graphile_worker import aadd_job, add_job
        from django_graphile_worker.testing import (
            aassert_enqueued, arun_jobs, assert_enqueued, clock, immediate, jobs, run_jobs,
        )
        from shop.tasks import awelcome, welcome

        class Clean:
            # Each test would find what another has left.
            def setUp(self):
                assert jobs() == [] == jobs(using="other")
                assert not User.objects.exists()
                self.began = timezone.now()

            def test_jobs_run(self):
                welcome.add_job({"name": "ann"})
                awelcome.add_job({"name": "bob"})
                assert_enqueued(welcome, payload={"name": "ann"})
                assert len(run_jobs()) == 2
                assert User.objects.count() == 2
                welcome.add_job({"name": "left behind"})

            def test_other_database(self):
                add_job("welcome", {"name": "ann"}, using="other")
                assert [ran.outcome for ran in run_jobs(using="other")] == ["succeeded"]
                add_job("welcome", {"name": "left behind"}, using="other")

            def test_a_month(self):
                with clock() as now:
                    now.advance(days=30)
                    assert len(run_jobs()) == 30

            def test_immediate(self):
                with immediate():
                    with transaction.atomic():
                        welcome.add_job({"name": "ann"})
                        assert not User.objects.exists()
                    assert User.objects.exists()

            async def test_async(self):
                await aadd_job("awelcome", {"name": "ann"})
                await aassert_enqueued("awelcome")
                assert len(await arun_jobs()) == 1
                assert await User.objects.acount() == 1

            @expectedFailure
            def test_that_fails_in_the_middle(self):
                with clock() as now, immediate():
                    now.advance(days=1)
                    add_job("welcome", {"name": "left behind"}, run_at=now())
                    add_job("welcome", {"name": "left behind"}, run_at=now())

        class InTransaction(Clean, TestCase):
            databases = {"default", "other"}

            def test_callbacks(self):
                with self.captureOnCommitCallbacks(execute=True):
                    transaction.on_commit(lambda: welcome.add_job({"name": "ann"}))
                assert len(run_jobs()) == 1

        class Committing(Clean, TransactionTestCase):
            databases = {"default", "other"}
    """,
    "shop/test_with_fixtures.py": """
        import pytest
        from django_graphile_worker import add_job
        from django_graphile_worker.testing import run_jobs
        from django.contrib.auth.models import User

        @pytest.mark.django_db
        def test_clock(job_clock):
            add_job("welcome", {"name": "ann"}, run_at=job_clock() + __import__("datetime").timedelta(days=2))
            job_clock.advance(days=1)
            assert not User.objects.exists()
            job_clock.advance(days=1)
            run_jobs(cron=False)
            assert User.objects.get().date_joined == job_clock()

        @pytest.mark.django_db(transaction=True)
        def test_immediate(immediate_jobs):
            add_job("welcome", {"name": "ann"})
            assert [ran.outcome for ran in immediate_jobs] == ["succeeded"]
    """,
    "pytest.ini": """
        [pytest]
        DJANGO_SETTINGS_MODULE = site_settings
        python_files = tests.py test_*.py
        addopts = -p django_graphile_worker.testing.pytest_plugin -p no:cacheprovider
        filterwarnings = error
    """,
}


@dataclass(frozen=True)
class Project:
    """The files of the project in a folder, and the prefix of the names of its databases."""

    folder: Path
    database: str

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Python in the project; the output is that of both streams."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DJANGO_"))}
        environment |= {"SAMPLE_DATABASE": self.database, "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{self.folder}"}
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
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    prefix = f"test_{os.environ['TEST_RUN_PID']}_sample_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    yield Project(folder, prefix)
    found = server.connection.execute("select datname from pg_database where starts_with(datname, %s)", [prefix])
    for (name,) in found.fetchall():
        server.drop_database(name)
