"""The start of a worker: a role that may not use the schema is refused, and tasks that do not exist are reported."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from django.db import connection, connections

from django_graphile_worker import JobSpec, add_jobs, run_once, signals
from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.worker.shutdown import Shutdown
from django_graphile_worker.worker.stop_request import Ending
from tests.conftest import WAIT_TIMEOUT
from tests.support.stepped_worker import build, own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture
def role() -> Iterator[str]:
    """A role to which nothing is granted yet."""
    name = f"worker_role_{os.getpid()}"
    execute(f"create role {name}")
    yield name
    execute(f"drop owned by {name}")
    execute(f"drop role {name}")


def refusal(role: str) -> str:
    """What a worker says whose own connections take on this role."""
    settings = connections.settings["default"]
    with own_tasks() as registry, pytest.MonkeyPatch.context() as patch:
        patch.setitem(settings, "OPTIONS", {**settings.get("OPTIONS", {}), "assume_role": role})
        runner = build(registry)
        with pytest.raises(SchemaError) as refused:
            runner.prepare()
        runner.close()
    return str(refused.value)


def test_a_role_that_may_not_use_the_schema__is_an_error(role: str, worker_schema: str) -> None:
    told = refusal(role)
    assert f"may not use the worker schema {worker_schema!r}" in told
    assert f": permission denied for schema {worker_schema}." in told


def test_a_role_that_sees_no_rows__is_an_error(role: str, worker_schema: str) -> None:
    execute(f'grant usage on schema "{worker_schema}" to {role}')
    execute(f'grant all on all tables in schema "{worker_schema}" to {role}')
    found = refusal(role)
    assert found.startswith(f"The role {role!r} may not use the worker schema ")
    assert "_private_job_queues, _private_jobs, _private_tasks appear empty to it." in found
    # The worker never entered the register.
    with connection.cursor() as cursor:
        cursor.execute(f'select count(*) from "{worker_schema}"._private_workers')
        assert cursor.fetchone() == (0,)


def test_tasks_that_do_not_exist__are_reported_when_the_worker_starts() -> None:
    def quick(payload: Any) -> None: ...

    received: list[tuple[str, tuple[str, ...]]] = []

    def remember(setting: str, patterns: tuple[str, ...], **others: Any) -> None:
        received.append((setting, patterns))

    signals.tasks_not_found.connect(remember)
    try:
        with own_tasks(quick) as registry:
            for selection in ({}, {"tasks": ("quick",)}, {"tasks": ("quick", "quik"), "exclude_tasks": ("slow",)}):
                runner = build(registry, **selection)
                runner.drain()
                runner.shutdown("the test ends")
    finally:
        signals.tasks_not_found.disconnect(remember)
    assert received == [("TASKS", ("quik",)), ("EXCLUDE_TASKS", ("slow",))]


@contextmanager
def heard(*names: str) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The signals with these names, in the order in which they were sent."""
    received: list[tuple[str, dict[str, Any]]] = []
    receivers = {}
    for name in names:

        def remember(name: str = name, **arguments: Any) -> None:
            received.append((name, arguments))

        receivers[name] = remember
        getattr(signals, name).connect(remember)
    try:
        yield received
    finally:
        for name, receiver in receivers.items():
            getattr(signals, name).disconnect(receiver)


def test_claims__are_reported_with_what_they_found(wait_until: Callable[..., None]) -> None:
    def quick(payload: Any) -> None: ...

    names = ("claim_started", "nothing_claimed", "jobs_claimed")
    with own_tasks(quick) as registry, heard(*names, "listening_starting", "listening_started") as received:
        runner = build(registry, poll_interval=0.05)
        runner.start()
        try:
            wait_until(lambda: "listening_started" in [name for name, _ in received])
            add_jobs([JobSpec("quick")])
            wait_until(lambda: "jobs_claimed" in [name for name, _ in received])
            wait_until(lambda: received[-1][0] == "nothing_claimed")
        finally:
            runner.shutdown("the test ends")

    told = [name for name, _ in received]
    claims = [name for name in told if name in names]
    assert set(claims[::2]) == {"claim_started"}
    assert set(claims[1::2]) == {"nothing_claimed", "jobs_claimed"}
    assert told.index("listening_starting") < told.index("listening_started")
    assert {arguments["worker_id"] for _, arguments in received} == {runner.worker.worker_id}


@pytest.mark.parametrize("has_error", [False, True], ids=["results are not stored", "an error"])
def test_a_shutdown_that_fails__is_reported(monkeypatch: pytest.MonkeyPatch, has_error: bool) -> None:
    def fail(self: Shutdown) -> Ending:
        if has_error:
            raise OSError("no more threads")
        return Ending(was_released=False, was_cut_off=False)

    with own_tasks() as registry, heard("shutdown_failed", "worker_stopped") as received:
        runner = build(registry)
        runner.drain()
        runner.shutdown("the test has looked")
        assert [name for name, _ in received] == ["worker_stopped"]
        received.clear()
        runner = build(registry)
        runner.drain()
        end = Shutdown.perform
        monkeypatch.setattr(Shutdown, "perform", lambda self: (end(self), fail(self))[1])
        with pytest.raises(OSError, match="no more threads") if has_error else nullcontext():
            runner.shutdown("the test ends")
    (name, arguments), *_ = received
    assert name == "shutdown_failed"
    assert arguments["reason"] == "the test ends"
    assert str(arguments["error"]) == (
        "no more threads" if has_error else "The last results were not stored: their jobs run again."
    )


def test_long_jobs_behind_short_jobs__run_at_the_same_time() -> None:
    """One slot runs the short jobs. When it has come to a long job, the others are called."""
    meeting, met = threading.Barrier(4), []

    def quick(payload: Any) -> None: ...

    def meet(payload: Any) -> None:
        met.append(meeting.wait(WAIT_TIMEOUT))

    add_jobs([JobSpec("quick")] * 2000 + [JobSpec("meet", max_attempts=1)] * 4)
    with own_tasks(quick, meet):
        run_once(concurrency=4)
    assert sorted(met) == [0, 1, 2, 3]
