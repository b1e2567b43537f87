"""The start of a worker: a role that may not use the schema is refused, and tasks that do not exist are reported."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections

from django_graphile_worker import JobSpec, add_jobs, run_once, signals
from django_graphile_worker.exceptions import SchemaError
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
    assert f"Expected a role that may use the worker schema {worker_schema!r}" in told
    assert f"got: permission denied for schema {worker_schema}." in told


def test_a_role_that_sees_no_rows__is_an_error(role: str, worker_schema: str) -> None:
    execute(f'grant usage on schema "{worker_schema}" to {role}')
    execute(f'grant all on all tables in schema "{worker_schema}" to {role}')
    assert f"got {role!r}, for which _private_job_queues, _private_jobs, _private_tasks appear empty." in refusal(role)
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
