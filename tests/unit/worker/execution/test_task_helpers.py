"""helpers: what a task gets from the worker that runs it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_graphile_worker.worker.execution.task_helpers import Helpers
from tests.support.slot import Slot


def test_helpers__know_the_job(slot: Slot) -> None:
    seen: list[Any] = []

    def looks(payload: Any, helpers: Helpers) -> None:
        seen.append((helpers.job, helpers.job, helpers.logger.extra, helpers.using, bool(helpers.abort)))
        assert helpers.worker_id == "django-worker-of-the-test"

    slot.run(looks, '{"a": 1}', id=9, attempts=3, queue_name="q", flags_text='{"slow": true}')
    first, second, extra, using, aborting = seen[0]
    assert first is second
    assert (first.id, first.payload, first.queue_name, first.flags) == (9, {"a": 1}, "q", {"slow"})
    assert extra == {"worker_id": "django-worker-of-the-test", "job_id": 9, "task_identifier": "a_task", "attempt": 3}
    assert (using, aborting) == ("default", False)


def test_helpers_logger__keeps_what_the_call_adds(slot: Slot, caplog: pytest.LogCaptureFixture) -> None:
    def logs(payload: Any, helpers: Helpers) -> None:
        helpers.logger.info("charged", extra={"order": 7})

    with caplog.at_level(logging.INFO, "django_graphile_worker.task"):
        slot.run(logs, id=9)
    (record,) = [vars(each) for each in caplog.records if each.name == "django_graphile_worker.task"]
    assert (record["order"], record["job_id"], record["task_identifier"]) == (7, 9, "a_task")
