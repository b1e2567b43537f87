"""The log of a worker: which lines, and which database they name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from django_graphile_worker import (
    add_job,
    run_once,
    signals,
)
from tests.support.stepped_worker import own_tasks

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


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_signals_and_lines__say_which_database_they_are_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_graphile_worker")
    heard: dict[str, set[str]] = {}

    def listen(name: str, event: signals.NamedSignal) -> None:
        def hear(**arguments: Any) -> None:
            assert set(event.arguments) <= set(arguments)
            heard.setdefault(name, set()).add(arguments["database"])

        event.connect(hear, weak=False, dispatch_uid=listen)

    events = {name: event for name, event in vars(signals).items() if isinstance(event, signals.NamedSignal)}
    for name, event in events.items():
        listen(name, event)
    add_job("note", using="default")
    add_job("note", "fail", using="other", max_attempts=1)
    try:
        run_once(databases=["default", "other"])
    finally:
        for event in events.values():
            event.disconnect(dispatch_uid=listen)
    both = {"default", "other"}
    assert heard["worker_started"] == heard["job_started"] == heard["job_released"] == heard["worker_stopped"] == both
    assert (heard["job_succeeded"], heard["job_permanently_failed"]) == ({"default"}, {"other"})
    (succeeded,) = [line for line in caplog.messages if " succeeded after" in line]
    (failed,) = [line for line in caplog.messages if " permanently failed after" in line]
    assert (succeeded.split()[0], failed.split()[0]) == ("[default]", "[other]")
    caplog.clear()
    add_job("note")
    run_once()
    assert caplog.messages
    assert "[" not in "".join(caplog.messages)
