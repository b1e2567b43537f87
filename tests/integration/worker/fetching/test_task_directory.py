"""The names of tasks in the database; and a worker finds Django tasks that it did not know when it started."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_graphile_worker import add_job
from django_graphile_worker.registry import tasks
from django_graphile_worker.worker.fetching import claimable
from tests.support.stepped_worker import Build, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]
MODULE = """
from django_graphile_worker.backend import task
calls = []
@task
def late(number):
    calls.append(number)
"""


@pytest.fixture
def worker(framework: Any) -> Iterator[Build]:
    make = Build(tasks)
    yield make
    for runner in make.made:
        runner.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path of modules."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("later_module", "broken_module"):
        sys.modules.pop(name, None)


def test_a_task_name_that_was_cleaned_away_is_found_again(
    runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str, ran: list[Any]
) -> None:
    worker = runner()
    raw_connection().execute(f'delete from "{worker_schema}"._private_tasks'.encode())
    add_job("quick", {"n": 7})
    worker.directory._reviewed_at = -math.inf
    run_all(worker, wait_until)
    assert ran == [7]


def test_worker_without_tasks__runs_the_first_job_of_a_task_at_once(
    framework: Any, worker: Build, wait_until: Wait
) -> None:
    stepped = worker()
    assert not stepped.directory.tasks
    framework.add.enqueue(1)
    run_all(stepped, wait_until)
    framework.mail.enqueue("a@example.com")
    run_all(stepped, wait_until)
    assert framework.calls == [(1, 0), "a@example.com"]
    found = sorted(stepped.directory.tasks)
    assert found == ["tests.support.django_tasks.add", "tests.support.django_tasks.mail@emails"]
    assert sorted(stepped.metadata()["tasks"]) == found


@pytest.mark.parametrize("first", [None, "raise RuntimeError", "raise SystemExit", "def late(number): ..."])
def test_module_that_did_not_exist__is_imported_after_the_next_deployment(
    framework: Any, worker: Build, wait_until: Wait, folder: Path, monkeypatch: pytest.MonkeyPatch, first: str | None
) -> None:
    if first is not None:
        (folder / "later_module.py").write_text(first)
    stepped = worker()
    add_job("later_module.late", {"args": [5]})
    run_all(stepped, wait_until)
    assert "later_module.late" not in stepped.directory.tasks
    # A deployment: a process that has imported the old module has to be restarted.
    sys.modules.pop("later_module", None)
    (folder / "later_module.py").write_text(MODULE + f"# {first}")
    monkeypatch.setattr(claimable, "RETRY_AFTER", 0.0)
    stepped.directory._retry_at.clear()
    run_all(stepped, wait_until)
    assert sys.modules["later_module"].calls == [5]


def test_failed_import__is_not_tried_for_each_claim_and_is_reported_once(
    framework: Any,
    worker: Build,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    imports: list[int] = []
    monkeypatch.setattr("builtins.imports", imports, raising=False)
    (folder / "broken_module.py").write_text("import builtins; builtins.imports.append(1); 1 / 0")
    stepped = worker()
    add_job("broken_module.task", {})
    for _ in range(3):
        stepped.directory.find_new_tasks()
    assert imports == [1]
    (message,) = [each for each in caplog.messages if "imported" in each]
    assert message.startswith("The task broken_module.task could not be imported, and is tried again after 30 seconds")
    assert message.endswith("(ZeroDivisionError: division by zero).")


@pytest.mark.parametrize(
    ("labels", "ran"),
    [
        ({}, ["plain", "add", "mail"]),
        ({"queue_labels": ["emails"]}, ["mail"]),
        ({"queue_labels": ["default"]}, ["plain", "add"]),
        ({"queue_labels": ["default", "emails"]}, ["plain", "add", "mail"]),
        ({"exclude_tasks": ["*@emails"]}, ["plain", "add"]),
    ],
)
def test_queue_labels__choose_the_tasks(
    framework: Any, worker: Build, wait_until: Wait, labels: dict[str, Any], ran: list[str]
) -> None:
    from django_graphile_worker import task

    done: list[str] = []
    task("plain")(lambda payload: done.append("plain"))
    stepped = worker(**labels)
    add_job("plain", {})
    framework.add.enqueue(1)
    framework.mail.enqueue("mail")
    run_all(stepped, wait_until)
    done += ["add" if isinstance(call, tuple) else "mail" for call in framework.calls]
    assert sorted(done) == sorted(ran)


def test_labels_of_the_backend__count_unless_the_worker_is_told_others(
    framework: Any, worker: Build, wait_until: Wait, settings: Any
) -> None:
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"QUEUE_LABELS": ["emails"]}}}
    framework.add.enqueue(1)
    framework.mail.enqueue("mail")
    run_all(worker(), wait_until)
    assert framework.calls == ["mail"]
    run_all(worker(queue_labels=["default"]), wait_until)
    assert framework.calls == ["mail", (1, 0)]
