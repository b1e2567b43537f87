from __future__ import annotations

import json
from collections.abc import Callable
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
from tests.support.rows import query

pytestmark = pytest.mark.django_db


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
