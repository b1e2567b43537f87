"""What events mean for the parts of a worker, where a test of one part cannot show it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from django_graphile_worker import conf
from django_graphile_worker.registry import Registry
from django_graphile_worker.routing import Place
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.outcomes import Succeeded
from tests.support.slot import make_claim

Make = Callable[..., DatabaseWorker]


@pytest.fixture
def make() -> Make:
    def make(**settings: Any) -> DatabaseWorker:
        place = Place(using="default", installation=conf.DEFAULT, settings=conf.current().replace(**settings))
        worker = DatabaseWorker(place, tasks={}, registry=Registry(), sender=DatabaseWorker)
        worker.heartbeat = Mock(holds_lease=True)
        return worker

    return make


def claim_of(worker: DatabaseWorker, **columns: Any) -> Any:
    return make_claim(**{"token": f"{worker.worker_id}/1", **columns})


def test_now__leaves_the_time_to_the_database_unless_the_setting_asks_for_the_worker_s_own(make: Make) -> None:
    assert make().now() is None
    now = make(use_local_time=True).now()
    assert now is not None
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)


def test_may_begin__a_claim_that_is_held(make: Make) -> None:
    worker = make()
    claim = claim_of(worker)
    assert worker.may_begin(claim)
    worker.take_new_id()
    assert not worker.may_begin(claim), "the claim was made under another id"
    worker.heartbeat = Mock(holds_lease=False)
    assert not worker.may_begin(claim_of(worker)), "the lease has expired"


def test_job_ended__hurries_if_other_jobs_wait_for_the_place_of_a_limited_job(make: Make) -> None:
    worker = make()
    worker.releaser = Mock()
    ordinary, limited = (Succeeded(claim_of(worker, task_id=task_id), 0.0) for task_id in (1, 2))
    worker.job_ended(limited)
    worker.limited = Mock()
    worker.limited.tasks.is_limited = lambda task_id: task_id == 2
    worker.job_ended(ordinary)
    worker.job_ended(limited)
    assert [call[0] for call in worker.releaser.method_calls] == ["put", "put", "put_urgently"]
