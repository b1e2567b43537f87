"""The setting RUNSERVER_WORKER: a worker beside a real ``manage.py runserver``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.faults.processes import is_alive, kill_tree, restore_signals
from tests.support.ports import free_port

URLS = """
from django.http import HttpResponse
from django.urls import path
from shop.tasks import tell

urlpatterns = [path("", lambda request: HttpResponse(str(tell.add_job({"from": "a request"}).id)))]
"""
TASK = """
from django_graphile_worker import task

@task
def tell(payload):
    # One text, so that no line of the log comes in between.
    print("I am {name}, from " + payload["from"], flush=True)
"""
SETTINGS = """
from testproject.settings import *
DEBUG = {debug}
INSTALLED_APPS = ["django.contrib.staticfiles", "django_graphile_worker", "shop"]
MIDDLEWARE = []
ROOT_URLCONF = "shop.urls"
GRAPHILE_WORKER = GRAPHILE_WORKER | {{"RUNSERVER_WORKER": True, "GRACE_PERIOD": 1}}
"""

pytestmark = pytest.mark.django_db(transaction=True)


class Site:
    """``manage.py runserver`` in a session of its own, as in a terminal."""

    def __init__(self, directory: Path, environment: dict[str, str], wait_until: Callable[..., None]) -> None:
        self._directory = directory
        self._port = free_port("127.0.0.1")
        (directory / "shop").mkdir()
        (directory / "shop" / "__init__.py").touch()
        (directory / "shop" / "urls.py").write_text(URLS)
        self.tasks = directory / "shop" / "tasks.py"
        self.tasks.write_text(TASK.format(name="old"))
        self._log = directory / "output"
        path = os.pathsep.join([str(directory), str(Path(__file__).parents[4])])
        self._environment = environment | {"DJANGO_SETTINGS_MODULE": "site_settings", "PYTHONPATH": path}
        self._wait_until = wait_until

    def start(self, *options: str, debug: bool = True) -> None:
        (self._directory / "site_settings.py").write_text(SETTINGS.format(debug=debug))
        with self._log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "django", "runserver", f"127.0.0.1:{self._port}", *options],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=restore_signals,
            )

    def output(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        try:
            self._wait_until(lambda: text in self.output())
        finally:
            print(self.output())  # noqa: T201 - pytest shows it with the failure

    def request(self) -> None:
        """Send a request, as soon as the site answers."""

        def answers() -> bool:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/") as answer:
                return bool(answer.status == 200)
            return False

        self._wait_until(answers)

    def processes(self, command: str) -> list[psutil.Process]:
        """Return the processes of this session that run this command."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid and command in process.cmdline() and is_alive(process):
                    found.append(process)
        return found

    def wait_until_gone(self) -> None:
        self.process.wait(60)
        self._wait_until(lambda: not self.processes("runserver") and not self.processes("runworker"))


@pytest.fixture
def site(tmp_path: Path, subprocess_environment: dict[str, str], wait_until: Callable[..., None]) -> Iterator[Site]:
    site = Site(tmp_path, subprocess_environment, wait_until)
    yield site
    kill_tree(site.process.pid)
    site.process.wait(60)
    for process in site.processes("runworker"):
        process.kill()


def test_worker_beside_runserver__runs_jobs_has_new_code_and_ends_with_it(site: Site) -> None:
    site.start()
    site.request()
    site.wait_for("I am old, from a request")
    site.wait_for(" succeeded after ")
    site.tasks.write_text(TASK.format(name="new"))

    def has_new_code() -> bool:
        # The reloader compares times of change, and may only now be taking its first look.
        later = site.tasks.stat().st_mtime + 1
        os.utime(site.tasks, (later, later))
        return "changed, reloading" in site.output()

    site._wait_until(has_new_code)
    site._wait_until(lambda: site.output().count("Quit the server with") > 1)
    site.request()
    site.wait_for("I am new, from a request")
    # Ctrl-C in a terminal signals all processes.
    os.killpg(site.process.pid, signal.SIGINT)
    site.wait_until_gone()
    assert "Traceback" not in site.output()


@pytest.mark.parametrize("options", [(), ("--noreload",)], ids=["reloading", "--noreload"])
def test_worker_beside_runserver__ends_although_runserver_is_killed(site: Site, options: tuple[str, ...]) -> None:
    site.start(*options)
    site.request()
    site.wait_for("I am old, from a request")
    # The process that serves: the child of the one that watches, if there is one.
    max(site.processes("runserver"), key=lambda process: process.pid != site.process.pid).kill()
    site.wait_until_gone()
    assert "is stopping: the process that started the worker is gone" in site.output()


def test_worker_beside_runserver__needs_debug(site: Site) -> None:
    site.start("--noreload", debug=False)
    site.request()
    assert site.processes("runworker") == []
