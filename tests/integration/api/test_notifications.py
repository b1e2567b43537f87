from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from django_graphile_worker import (
    JobSpec,
    add_job,
    add_jobs,
    remove_job,
    reschedule_jobs,
)
from tests.support.rows import as_job, query, stored

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


class TestNotifications:
    @pytest.fixture
    def heard(self, raw_connection: Callable[..., Any]) -> Callable[[], list[int]]:
        listener = raw_connection()
        listener.execute('listen "jobs:insert"')

        def counts() -> list[int]:
            # Our own notification comes after all that were committed before it.
            listener.execute("select pg_notify('jobs:insert', '')")
            payloads = [notification.payload for notification in listener.notifies(timeout=0.05)]
            assert payloads.pop() == ""
            return [json.loads(payload)["count"] for payload in payloads]

        return counts

    def test_adding_and_rescheduling_wakes_workers(self, heard: Callable[[], list[int]]) -> None:
        job = add_job("a", run_at=timedelta(days=1))
        assert heard() == []
        reschedule_jobs([job.id], run_at=timedelta(0))
        add_job("a", job_key="k")
        add_jobs([JobSpec("a"), JobSpec("a")])
        remove_job("k")
        assert heard() == [1, 1, 2, -1]

    def test_notifications_can_be_switched_off(self, heard: Callable[[], list[int]], settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "NOTIFY": False}
        job = add_job("a", {"n": 1}, job_key="k")
        assert job == as_job(stored(job))
        (batched,) = add_jobs([JobSpec("a", {"n": 2})])
        assert batched == as_job(stored(batched))
        assert add_job("a", job_key="k", job_key_mode="unsafe_dedupe").id == job.id
        assert add_jobs([JobSpec("a")], returning=False) == 1
        assert [moved.id for moved in reschedule_jobs([job.id], run_at=timedelta(0))] == [job.id]
        assert reschedule_jobs([99_999_999], run_at=timedelta(0)) == []
        assert remove_job("k")
        assert remove_job("k") is None
        assert heard() == []

    @pytest.mark.parametrize(
        "act",
        [
            lambda: add_job("a"),
            lambda: add_jobs([JobSpec("a")]),
            lambda: add_jobs([JobSpec("a")], returning=False),
            lambda: remove_job("nothing"),
            lambda: reschedule_jobs([99_999_999]),
        ],
    )
    def test_silence_ends_with_the_call(
        self, act: Callable[[], Any], heard: Callable[[], list[int]], settings: Any
    ) -> None:
        with transaction.atomic():
            settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "NOTIFY": False}
            act()
            settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "NOTIFY": True}
            add_job("a")
        assert heard() == [1]

    def test_silence_asked_for_by_others_stays(self, heard: Callable[[], list[int]], settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "NOTIFY": False}
        with transaction.atomic():
            query("select set_config('graphile_worker.notify', 'off', true)")
            add_job("a")
            settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "NOTIFY": True}
            add_job("a")
        assert heard() == []
