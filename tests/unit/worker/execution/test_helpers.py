"""helpers: what a task gets from the worker that runs it, also the request to stop."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from django_graphile_worker.exceptions import RetryLater
from django_graphile_worker.worker.execution.helpers import Helpers
from django_graphile_worker.worker.outcomes import Interrupted, Succeeded
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


def test_abort__is_seen_by_running_and_by_future_jobs(slot: Slot) -> None:
    started = threading.Event()

    def waits(payload: Any, helpers: Any) -> None:
        started.set()
        if not helpers.abort.wait(60):
            raise TimeoutError

    async def awaits(payload: Any, helpers: Any) -> None:
        await asyncio.wait_for(helpers.abort, 10)

    future = slot.start(waits)
    assert started.wait(60)
    slot.executor.abort()
    assert isinstance(future.result(60), Succeeded)
    assert isinstance(slot.run(waits), Succeeded)
    assert isinstance(slot.run(awaits), Succeeded)


def test_abort__is_one_for_each_run_and_made_only_when_asked_for(slot: Slot) -> None:
    aborts: list[Any] = []

    def looks(payload: Any, helpers: Any) -> None:
        assert helpers.abort is helpers.abort
        aborts.append(helpers.abort)

    def looks_not(payload: Any, helpers: Any) -> None: ...

    slot.run(looks)
    slot.run(looks)
    slot.run(looks_not)
    first, second = aborts
    assert first is not second
    assert len(slot.executor.aborts._made) == 2
    first.set()
    assert not second.is_set()
    # What a task left running is asked to stop, too.
    slot.executor.abort()
    assert second.is_set()
    del first, second, aborts[:]
    assert len(slot.executor.aborts._made) == 0, "aborts of runs that are over are freed"


def test_retry_at_once_while_the_worker_stops__costs_no_attempt(slot: Slot) -> None:
    def gives_way(payload: Any) -> None:
        raise RetryLater(payload)

    async def gives_way_too(payload: Any) -> None:
        raise RetryLater(payload)

    assert slot.failure(gives_way, "0").delay == 0
    slot.executor.abort()
    assert isinstance(slot.run(gives_way, "0"), Interrupted)
    assert isinstance(slot.run(gives_way_too, "0"), Interrupted)
    assert slot.failure(gives_way, "60").delay == 60
