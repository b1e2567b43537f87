"""``runworker --reload``: new code without a restart by hand, and no job left behind on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from django_graphile_worker import add_job
from django_graphile_worker.models import Job, Worker
from tests.faults.processes import kill_tree

TASK = """
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from django_graphile_worker import task

@task
def tell(payload):
    print("I am {name}", flush=True)

@task
def wait_for(payload):
    print("waiting", flush=True)
    while not Path(payload).exists():
        Event().wait(0.01)
    print("waited", flush=True)

@task
def lend_a_thread(payload):
    print("lending", flush=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(Event().wait).result()
"""
BROKEN = "def tell(payload:\n"
SETTINGS = """
from testproject.settings import *
# Fewer apps than those of the site, because each test starts several processes.
INSTALLED_APPS = ["django_graphile_worker", "reloaded"]
GRAPHILE_WORKER = GRAPHILE_WORKER | {"GRACE_PERIOD": 60}
"""

pytestmark = pytest.mark.django_db(transaction=True)


class Reloader:
    """``runworker --reload`` in a session of its own, and the app that it runs."""

    def __init__(self, directory: Path, environment: dict[str, str], wait_until: Callable[..., None]) -> None:
        self.tasks = directory / "reloaded" / "tasks.py"
        self.tasks.parent.mkdir()
        (self.tasks.parent / "__init__.py").touch()
        (directory / "reload_settings.py").write_text(SETTINGS)
        self._log = directory / "output"
        self._environment = environment | {
            "DJANGO_SETTINGS_MODULE": "reload_settings",
            "PYTHONPATH": os.pathsep.join([str(directory), str(Path(__file__).parents[4])]),
        }
        self._wait_until = wait_until

    def start(self, code: str, *options: str) -> None:
        self.tasks.write_text(code)
        with self._log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "django", "runworker", "--reload", "--no-cron", *options],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def output(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        try:
            self._wait_until(lambda: self.output().count(text) >= times)
        finally:
            print(self.output())  # noqa: T201 - pytest shows it with the failure

    def change(self, code: str, *, until: str, times: int) -> None:
        """The reloader may only now be taking its first look: the file goes on being new."""
        self.tasks.write_text(code)

        def has_happened() -> bool:
            later = self.tasks.stat().st_mtime + 1
            os.utime(self.tasks, (later, later))
            return self.output().count(until) >= times

        self._wait_until(has_happened)

    def worker(self) -> psutil.Process:
        (worker,) = psutil.Process(self.process.pid).children()
        return worker


@pytest.fixture
def reloader(
    tmp_path: Path, subprocess_environment: dict[str, str], wait_until: Callable[..., None]
) -> Iterator[Reloader]:
    reloader = Reloader(tmp_path, subprocess_environment, wait_until)
    yield reloader
    kill_tree(reloader.process.pid)
    reloader.process.wait(60)


def test_new_code__is_picked_up_and_code_with_an_error_is_told_and_waited_for(
    reloader: Reloader, wait_until: Callable[..., None]
) -> None:
    reloader.start(TASK.format(name="old"))
    add_job("tell")
    reloader.wait_for("I am old")
    reloader.change(BROKEN, until="It starts again when a file changes.", times=1)
    assert reloader.output().count("SyntaxError") == 1
    reloader.change(TASK.format(name="new"), until=" started on ", times=2)
    add_job("tell")
    reloader.wait_for("I am new")
    wait_until(lambda: Worker.objects.count() == 1)
    os.killpg(reloader.process.pid, signal.SIGINT)
    assert reloader.process.wait(60) == 0


@pytest.mark.chaos
def test_new_code__waits_for_no_thread_of_a_pool_whose_job_was_given_back(reloader: Reloader) -> None:
    reloader.start(TASK.format(name="old"), "--grace-period", "0.1")
    add_job("lend_a_thread")
    reloader.wait_for("lending")
    reloader.change(TASK.format(name="new"), until=" started on ", times=2)


@pytest.mark.chaos
def test_reloader_that_waits_for_code_can_be_stopped(reloader: Reloader) -> None:
    reloader.start(BROKEN)
    reloader.wait_for("It starts again when a file changes.")
    reloader.process.send_signal(signal.SIGTERM)
    assert reloader.process.wait(60) == 0


# As a terminal does, and as a service manager does.
@pytest.mark.parametrize(
    ("number", "send"),
    [(signal.SIGINT, os.killpg), pytest.param(signal.SIGTERM, os.kill, marks=pytest.mark.chaos)],
    ids=["group", "process"],
)
def test_one_signal__lets_running_jobs_finish(
    reloader: Reloader, tmp_path: Path, number: signal.Signals, send: Callable[[int, int], None]
) -> None:
    reloader.start(TASK.format(name="old"))
    add_job("wait_for", str(tmp_path / "go"))
    reloader.wait_for("waiting")
    send(reloader.process.pid, number)
    reloader.wait_for("is stopping")
    (tmp_path / "go").touch()
    assert reloader.process.wait(60) == 0
    assert "waited" in reloader.output()
    assert "Traceback" not in reloader.output()
    assert Job.objects.count() == Worker.objects.count() == 0


@pytest.mark.chaos
@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["group", "process"])
def test_two_signals__stop_at_once_and_leave_nothing_locked(
    reloader: Reloader, tmp_path: Path, send: Callable[[int, int], None]
) -> None:
    reloader.start(TASK.format(name="old"))
    job = add_job("wait_for", str(tmp_path / "go"))
    reloader.wait_for("waiting")
    for _ in range(2):
        send(reloader.process.pid, signal.SIGINT)
        reloader.wait_for("is stopping")
    assert reloader.process.wait(60) == 128 + signal.SIGINT
    left = Job.objects.get(pk=job.id)
    assert (left.locked_by, left.attempts) == (None, 0)


@pytest.mark.chaos
def test_reloader_that_is_killed_takes_the_worker_along(reloader: Reloader, wait_until: Callable[..., None]) -> None:
    reloader.start(TASK.format(name="old"))
    reloader.wait_for(" started on ")
    worker = reloader.worker()
    reloader.process.kill()
    wait_until(lambda: not worker.is_running())
    assert Worker.objects.count() == 0


@pytest.mark.chaos
def test_signal_while_the_worker_loads__ends_it_without_a_word(
    reloader: Reloader, wait_until: Callable[..., None]
) -> None:
    reloader.start(TASK.format(name="old"))
    wait_until(lambda: psutil.Process(reloader.process.pid).children())
    os.killpg(reloader.process.pid, signal.SIGINT)
    assert reloader.process.wait(60) == 0
    assert "Traceback" not in reloader.output()
    assert Worker.objects.count() == 0
