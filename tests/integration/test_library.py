"""The worker as a library: ``run_once()``, ``run_worker()`` and ``Worker``, called from code."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from django_graphile_worker import add_job, run_once
from tests.integration.worker.parts import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


def note(payload: Any) -> None:
    if payload == "fail":
        raise ValueError("as asked")


@pytest.fixture(autouse=True)
def note_is_the_only_task() -> Iterator[None]:
    with own_tasks(note):
        yield


@pytest.mark.parametrize(("in_project", "in_call", "is_told"), [(True, False, False), (False, True, True)])
def test_log_success__is_the_workers_own_setting_before_the_projects(
    settings: Any, caplog: pytest.LogCaptureFixture, in_project: bool, in_call: bool, is_told: bool
) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"LOG_SUCCESS": in_project}
    caplog.set_level(logging.INFO, logger="django_graphile_worker")
    add_job("note")
    add_job("note", "fail", max_attempts=1)
    assert run_once(log_success=in_call) == 0
    assert ("note #" in caplog.text and " succeeded after" in caplog.text) is is_told
    assert " permanently failed after" in caplog.text
