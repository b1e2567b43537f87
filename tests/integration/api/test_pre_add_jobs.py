"""The signal that is sent before jobs are added, and the setting MAX_ATTEMPTS, which is applied at the same place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

from django_graphile_worker import Helpers, JobSpec, aadd_job, add_job, add_jobs, get_job, models, recurring, task
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.registry import tasks
from django_graphile_worker.signals import pre_add_jobs
from django_graphile_worker.testing import run_jobs

pytestmark = pytest.mark.django_db


class RefusedError(Exception):
    pass


@contextmanager
def receiving(receiver: Callable[..., None]) -> Iterator[None]:
    pre_add_jobs.connect(receiver)
    try:
        yield
    finally:
        pre_add_jobs.disconnect(receiver)


def add_tenant(specs: list[JobSpec], **kwargs: Any) -> None:
    for index, spec in enumerate(specs):
        specs[index] = replace(spec, payload={**spec.payload, "tenant": "acme"})


def tenants() -> set[Any]:
    return {job.payload.get("tenant") for job in models.Job.objects.all()}


@pytest.mark.parametrize(
    "add",
    [
        lambda: add_job("a", {"n": 1}),
        lambda: add_job("a", {"n": 1}, job_key="k"),
        lambda: add_job("a", {"n": 1}, unique="k"),
        lambda: async_to_sync(aadd_job)("a", {"n": 1}),
        lambda: add_jobs([JobSpec("a", {"n": 1}), JobSpec("a", {"n": 2}, job_key="k")]),
        lambda: add_jobs([JobSpec("a", {"n": n}) for n in range(3_000)]),
        lambda: add_jobs((JobSpec("a", {"n": n}) for n in range(3_000)), returning=False),
    ],
    ids=["one", "keyed", "unique", "async", "many", "copied", "stream"],
)
def test_receivers_may_replace_specs(add: Callable[[], object]) -> None:
    with receiving(add_tenant):
        add()
    assert tenants() == {"acme"}


def test_receivers_get_the_database(settings: Any) -> None:
    seen: list[Any] = []

    def remember(specs: list[JobSpec], database: str, installation: str, **kwargs: Any) -> None:
        seen.append(([spec.identifier for spec in specs], database, installation))

    with receiving(remember):
        add_jobs([JobSpec("a"), JobSpec("b")])
    assert seen == [(["a", "b"], "default", "default")]


@pytest.mark.parametrize("returning", [True, False])
def test_receiver_that_raises__nothing_is_added(returning: bool) -> None:
    def refuse(specs: list[JobSpec], **kwargs: Any) -> None:
        if any(spec.identifier == "b" for spec in specs):
            raise RefusedError

    with receiving(refuse):
        with pytest.raises(RefusedError):
            add_jobs([JobSpec("a"), JobSpec("b")], returning=returning)
        with pytest.raises(RefusedError):
            add_job("b")
    assert models.Job.objects.count() == 0


def test_receiver_that_removes_specs__is_refused() -> None:
    def remove(specs: list[JobSpec], **kwargs: Any) -> None:
        specs.clear()

    with receiving(remove), pytest.raises(InvalidTypeError, match=r"^pre_add_jobs: a receiver left 0 of 1 specs\."):
        add_job("a")


def test_jobs_of_tasks_and_of_django_tasks(framework: Any) -> None:
    seen: list[str] = []

    def remember(specs: list[JobSpec], **kwargs: Any) -> None:
        seen.extend(spec.identifier for spec in specs)

    @task
    def first(payload: Any, helpers: Helpers) -> None:
        helpers.add_job("third")

    with receiving(remember):
        first.add_job()
        framework.add.enqueue(1)
        run_jobs(on_error="record")
    assert seen == ["first", "tests.support.django_tasks.add", "third"]


class TestMaxAttempts:
    def test_jobs_that_say_nothing_get_the_setting(self, settings: Any) -> None:
        settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"MAX_ATTEMPTS": 4}
        assert add_job("a").max_attempts == 4
        assert add_job("a", job_key="k").max_attempts == 4
        assert add_job("a", unique=True).max_attempts == 4
        assert add_job("a", max_attempts=7).max_attempts == 7
        assert {job.max_attempts for job in add_jobs([JobSpec("a")] * 2_000)} == {4}
        add_jobs((JobSpec("b") for _ in range(2_000)), returning=False)
        with connection.cursor() as cursor:
            cursor.execute(f"select distinct max_attempts from {models.Job._meta.db_table} order by 1")
            assert cursor.fetchall() == [(4,), (7,)]

    def test_a_task_goes_before_the_setting(self, settings: Any) -> None:
        settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"MAX_ATTEMPTS": 4}
        with tasks.isolated():

            @task(max_attempts=9)
            def patient(payload: Any) -> None: ...

            assert patient.add_job().max_attempts == 9

    def test_jobs_of_the_crontab_and_of_schedules(self, settings: Any) -> None:
        with tasks.isolated():

            @task
            def nightly(payload: Any) -> None: ...

            settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {
                "MAX_ATTEMPTS": 4,
                "CRONTAB": "0 4 * * * nightly\n0 5 * * * nightly ?id=own&max=2",
            }
            assert [item.max_attempts for item in recurring.collect() if item.task == "nightly"] == [4, 2]
            schedule = models.Schedule.objects.create(name="s", task="nightly", cron="0 4 * * *")
            job = get_job(schedule.run_now())
            assert job is not None
            assert job.max_attempts == 4
