"""Tasks that jobs wait for and no live worker has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_graphile_worker import signals
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def quick(payload: Any) -> None: ...


@pytest.fixture
def runner() -> Iterator[Build]:
    with stepped_workers(quick) as make:
        yield make


def test_tasks_that_no_live_worker_has__are_reported_once_by_name(runner: Build) -> None:
    told: list[tuple[str, ...]] = []

    def remember(identifiers: tuple[str, ...], **kwargs: Any) -> None:
        told.append(identifiers)

    signals.tasks_unserved.connect(remember)
    try:
        worker = runner()
        make_job("quick")
        make_job("typo")
        assert worker.unserved_tasks.step() == 15.0, "workers that start together have registered by then"
        for name in ("other", None, None):
            worker.unserved_tasks.step()
            worker.signal_sender.step()
            if name:
                make_job(name)
        assert told == [("typo",), ("other",)]
    finally:
        signals.tasks_unserved.disconnect(remember)
