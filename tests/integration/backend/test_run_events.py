"""The signals of the framework: with the backend as sender, when what they tell is true."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from django_graphile_worker import permanently_fail_jobs
from django_graphile_worker.backend.results import job_id_of

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[..., Any]


@pytest.fixture
def sent(framework: Any) -> Iterator[list[tuple[str, Any, str, str]]]:
    """The signals: name, sender, status of the result that was sent, and status that a reader sees at that moment."""
    from django_graphile_worker.backend import compat

    found: list[tuple[str, Any, str, str]] = []
    with ExitStack() as stack:
        for name in ("task_enqueued", "task_started", "task_finished"):
            signal = getattr(compat, name)

            def receive(sender: Any, task_result: Any, name: str = name, **kwargs: Any) -> None:
                stored = compat.task_backends["default"].get_result(task_result.id)
                found.append((name, sender, str(task_result.status), str(stored.status)))

            signal.connect(receive, weak=False)
            stack.callback(signal.disconnect, receive)
        yield found


def test_signals__tell_what_a_reader_sees(framework: Any, sent: list[Any], run: Run) -> None:
    from django_graphile_worker.backend import GraphileWorkerBackend

    framework.add.enqueue(1)
    run()
    assert sent == [
        ("task_enqueued", GraphileWorkerBackend, "READY", "READY"),
        ("task_started", GraphileWorkerBackend, "RUNNING", "RUNNING"),
        ("task_finished", GraphileWorkerBackend, "SUCCESSFUL", "SUCCESSFUL"),
    ]


@pytest.mark.parametrize(("name", "attempts", "end"), [("flaky", 3, "SUCCESSFUL"), ("broken", 3, "FAILED")])
def test_attempt_that_is_repeated__has_not_finished(
    framework: Any, sent: list[Any], run: Run, name: str, attempts: int, end: str
) -> None:
    getattr(framework, name).enqueue()
    run()
    names = [each[0] for each in sent]
    assert names == ["task_enqueued", *["task_started"] * attempts, "task_finished"]
    assert sent[-1][2:] == (end, end)


def test_async_task__lets_receivers_use_the_orm(framework: Any, sent: list[Any], run: Run) -> None:
    framework.about_later.enqueue("word")
    run()
    assert [each[0] for each in sent] == ["task_enqueued", "task_started", "task_finished"]


def test_failure__is_logged_with_its_traceback(framework: Any, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    from django_graphile_worker.backend.compat import LOGGER_NAME

    with caplog.at_level(logging.INFO, LOGGER_NAME):
        framework.broken.using(max_attempts=1).enqueue("no such order")
        run()
    record = [each for each in caplog.records if each.name == LOGGER_NAME][-1]
    assert (record.levelname, "state=FAILED" in record.message) == ("ERROR", True)
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


def test_receiver_that_raises__harms_neither_the_job_nor_the_worker(framework: Any, run: Run) -> None:
    from django_graphile_worker.backend import compat

    def refuse(**kwargs: Any) -> None:
        raise RuntimeError("a receiver")

    for signal in (compat.task_started, compat.task_finished):
        signal.connect(refuse)
    result = framework.add.enqueue(1)
    run()
    for signal in (compat.task_started, compat.task_finished):
        assert signal.disconnect(refuse)
    result.refresh()
    assert result.status == "SUCCESSFUL"


def test_job_that_failed_with_its_dead_worker__has_finished(
    framework: Any, sent: list[Any], worker: Any, wait_until: Callable[..., None]
) -> None:
    result = framework.add.using(max_attempts=1).enqueue(1)
    job_id = job_id_of(result.id, "default")
    assert job_id is not None
    (failed,) = permanently_fail_jobs([job_id], "its workers died")
    parts = worker()
    parts.directory.find_new_tasks()
    parts.task_reports.ended([failed])
    parts.signal_sender.step()
    assert [each[0::2] for each in sent] == [("task_enqueued", "READY"), ("task_finished", "FAILED")]
    result.refresh()
    assert "its workers died" in result.errors[0].traceback
