"""A coroutine on the loop: its use of the ORM runs on the thread of the slot that waits for it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from asgiref.sync import SyncToAsync, async_to_sync, sync_to_async
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from django_graphile_worker.worker.outcomes import Succeeded
from tests.support.backends import execute
from tests.support.slot import Slot, SlotWithoutThread, open_slot

pytestmark = pytest.mark.django_db(transaction=True)


aexecute = sync_to_async(execute)


@pytest.fixture(params=[Slot, SlotWithoutThread], ids=["with a thread", "without a thread"])
def slot(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Slot]:
    with open_slot(request.param) as slot:
        yield slot


def test_orm__runs_on_the_slots_thread(slot: Slot) -> None:
    threads: list[Any] = []

    async def works(payload: Any) -> None:
        threads.append(threading.current_thread().name)
        threads.append(await sync_to_async(lambda: threading.current_thread().name)())
        assert await ContentType.objects.acount() >= 0

    assert isinstance(slot.run(works), Succeeded)
    assert threads[0] == "graphile-worker-async"
    assert threads[1].startswith("slot")


def test_connection__stays_with_the_slot(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    pids: list[Any] = []

    async def asynchronous(payload: Any) -> None:
        pids.append(await aexecute("select pg_backend_pid()"))

    def synchronous(payload: Any) -> None:
        pids.append(execute("select pg_backend_pid()"))

    slot.run(asynchronous)
    slot.run(synchronous)
    slot.run(asynchronous)
    assert len(set(pids)) == 1


def test_leftover__fails_the_async_job_too(slot: Slot) -> None:
    async def careless(payload: Any) -> None:
        await aexecute("begin")

    assert "database 'default': a transaction open" in slot.failure(careless).error


def test_jobs_on_two_slots__do_not_share_a_connection(transactional_db: None) -> None:
    barrier = threading.Barrier(2, timeout=60)
    pids: list[Any] = []

    async def works(payload: Any) -> None:
        pids.append(await sync_to_async(lambda: (execute("select pg_backend_pid()"), barrier.wait())[0])())

    with ExitStack() as stack:
        slots = [stack.enter_context(open_slot()) for _ in range(2)]
        futures = [slot.start(works) for slot in slots]
        assert all(isinstance(future.result(60), Succeeded) for future in futures)
    assert len(set(pids)) == 2


def test_synchronous_part__may_call_back_into_async_code(slot: Slot) -> None:
    async def inner() -> str:
        return str((await aexecute("select 'row'"))[0])

    async def works(payload: Any) -> None:
        assert (await sync_to_async(lambda: async_to_sync(inner)())()) == "row"

    assert isinstance(slot.run(works), Succeeded)


def test_stop_iteration_of_a_synchronous_part__does_not_hang(slot: Slot) -> None:
    async def works(payload: Any) -> None:
        await sync_to_async(lambda: next(iter([])))()

    assert "StopIteration" in slot.failure(works).error


def test_synchronous_call_after_the_end__is_refused(slot: Slot) -> None:
    seen: list[BaseException] = []
    go_on: list[Callable[[], Any]] = []
    done = threading.Event()

    async def straggles() -> None:
        job_is_over, loop = asyncio.Event(), asyncio.get_running_loop()
        go_on.append(lambda: loop.call_soon_threadsafe(job_is_over.set))
        await job_is_over.wait()
        try:
            await aexecute("select 1")
        except BaseException as error:
            seen.append(error)
        done.set()

    kept: list[Any] = []

    async def careless(payload: Any) -> None:
        kept.append(asyncio.create_task(straggles()))
        await asyncio.sleep(0)

    assert isinstance(slot.run(careless), Succeeded)
    go_on[0]()
    assert done.wait(60)
    assert "await what the task starts" in str(seen[0])


def test_synchronous_calls__stay_on_the_slots_thread_if_the_site_empties_the_dictionary_of_executors(
    slot: Slot,
) -> None:
    threads: list[str] = []

    async def works(payload: Any) -> None:
        threads.append(await sync_to_async(lambda: threading.current_thread().name)())

    for _ in range(2):
        SyncToAsync.context_to_thread_executor.clear()
        assert isinstance(slot.run(works), Succeeded)
    assert [name.split("_")[0] for name in threads] == ["slot", "slot"]


class Thing:
    """An object of a job that can be weakly referenced."""


def test_coroutine_that_has_ended__is_not_kept_with_what_it_had(slot: Slot) -> None:
    kept: list[weakref.ref[Thing]] = []

    async def has_things(payload: Any) -> Any:
        thing, result = Thing(), Thing()
        payload["thing"] = thing
        kept.extend(map(weakref.ref, (thing, result)))
        await aexecute("select 1")
        return result

    async def has_none(payload: Any) -> None:
        await asyncio.sleep(0)

    for _ in range(3):
        assert isinstance(slot.run(has_things), Succeeded)
    # The loop refers to its last task for a moment longer.
    assert isinstance(slot.run(has_none), Succeeded)
    gc.collect()
    assert [thing() for thing in kept] == [None] * 6


def test_result__is_not_kept_by_a_timer_that_the_coroutine_leaves(slot: Slot) -> None:
    kept: list[weakref.ref[Thing]] = []

    async def leaves_a_timer(payload: Any) -> Any:
        asyncio.get_running_loop().call_later(3600, print)
        result = Thing()
        kept.append(weakref.ref(result))
        return result

    async def has_none(payload: Any) -> None:
        await asyncio.sleep(0)

    assert isinstance(slot.run(leaves_a_timer), Succeeded)
    # The loop refers to its last task for a moment longer.
    assert isinstance(slot.run(has_none), Succeeded)
    gc.collect()
    assert kept[0]() is None
