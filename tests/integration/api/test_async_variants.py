from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

import django_graphile_worker
from django_graphile_worker import (
    CleanupResult,
    JobSpec,
    aadd_job,
    aadd_jobs,
    acleanup,
    acomplete_jobs,
    aget_job,
    apermanently_fail_jobs,
    aremove_job,
    areschedule_jobs,
    models,
)

FUNCTIONS = [
    "add_job",
    "add_jobs",
    "get_job",
    "remove_job",
    "complete_jobs",
    "permanently_fail_jobs",
    "reschedule_jobs",
    "force_unlock_workers",
    "cleanup",
    "cancel_jobs",
    "cancel_by_key",
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_a_variant_with_the_same_parameters(name: str) -> None:
    function, variant = getattr(django_graphile_worker, name), getattr(django_graphile_worker, f"a{name}")
    assert inspect.iscoroutinefunction(variant)
    assert variant.__name__ == f"a{name}"
    assert variant.__doc__ == f"Asynchronous variant of ``{name}()``."
    assert inspect.signature(variant).parameters == inspect.signature(function).parameters
    assert {name, f"a{name}"} <= set(django_graphile_worker.__all__)


@pytest.mark.django_db
def test_the_variants_do_what_the_functions_do() -> None:
    async def scenario() -> CleanupResult:
        job = await aadd_job("a", {"n": 1}, job_key="k")
        assert (await aget_job("k")) == job
        assert (await aremove_job("k")) == job
        assert await aremove_job("k") is None
        one, two = await aadd_jobs([JobSpec("a", {"n": 1}), JobSpec("a", {"n": 2})])
        assert await aadd_jobs((JobSpec("b") for _ in range(3)), returning=False) == 3
        (moved,) = await areschedule_jobs([one.id], run_at=timedelta(days=1), priority=3)
        assert moved.priority == 3
        assert [found.id for found in await acomplete_jobs([one.id])] == [one.id]
        (failed,) = await apermanently_fail_jobs([two.id], "no")
        assert (failed.last_error or "").startswith("no\n")
        return await acleanup(failed_jobs_older_than=timedelta(0), unused_tasks=False)

    assert async_to_sync(scenario)() == CleanupResult(jobs=1, queues=0, tasks=0)
    assert models.Job.objects.count() == 3


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fails", [True, False])
def test_a_job_added_asynchronously_is_part_of_the_transaction_around_it(fails: bool) -> None:
    async def inside() -> None:
        await aadd_job("a")
        await asyncio.gather(*(aadd_job("b") for _ in range(3)))
        await aadd_jobs([JobSpec("c")])

    def outside() -> None:
        with transaction.atomic():
            async_to_sync(inside)()
            if fails:
                raise RuntimeError

    if fails:
        with pytest.raises(RuntimeError):
            outside()
    else:
        outside()
    assert models.Job.objects.count() == (0 if fails else 5)


@pytest.mark.django_db(transaction=True)
def test_async_code_can_hold_its_transaction_in_one_sync_function() -> None:
    @transaction.atomic
    def both() -> None:
        django_graphile_worker.add_job("a")
        raise RuntimeError

    async def view() -> None:
        with pytest.raises(RuntimeError):
            await sync_to_async(both)()
        await aadd_job("b")

    async_to_sync(view)()
    assert models.Job.objects.count() == 1
