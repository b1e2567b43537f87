"""async def tasks: one loop, and the ORM on the thread of the slot that waits."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from django_graphile_worker import signals
from django_graphile_worker.exceptions import RetryLater
from django_graphile_worker.worker.execution.task_helpers import Helpers
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Succeeded
from tests.conftest import RawConnection
from tests.support.slot import Slot, open_slot

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def slot(transactional_db: None) -> Iterator[Slot]:
    with open_slot() as slot:
        yield slot


def execute(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone() if cursor.description else None


aexecute = sync_to_async(execute)


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


def test_helpers__query_and_add_from_async_code(slot: Slot) -> None:
    rows: list[Any] = []

    async def works(payload: Any, helpers: Helpers) -> None:
        rows.extend(await helpers.aquery("select %s::int as answer", [42]))
        rows.append((await helpers.aadd_job("another", {"a": 1})).task_identifier)

    assert isinstance(slot.run(works), Succeeded)
    assert rows == [{"answer": 42}, "another"]


def test_helpers__query_and_add_from_plain_code(slot: Slot) -> None:
    rows: list[Any] = []

    def works(payload: Any, helpers: Helpers) -> None:
        rows.extend(helpers.query("select 1 as one union all select 2"))
        rows.append(helpers.query("set local work_mem = '1MB'"))
        rows.append(helpers.add_job("another").task_identifier)
        rows.append(helpers.connection.alias)

    assert isinstance(slot.run(works), Succeeded)
    assert rows == [{"one": 1}, {"one": 2}, [], "another", "default"]


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


def test_many_synchronous_parts_at_once__all_run(slot: Slot) -> None:
    counted: list[int] = []

    async def works(payload: Any) -> None:
        counted.extend(await asyncio.gather(*(sync_to_async(lambda n=n: n)() for n in range(50))))

    assert isinstance(slot.run(works), Succeeded)
    assert counted == list(range(50))


def test_stop_iteration_of_a_synchronous_part__does_not_hang(slot: Slot) -> None:
    async def works(payload: Any) -> None:
        await sync_to_async(lambda: next(iter([])))()

    assert "StopIteration" in slot.failure(works).error


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_background_coroutine_that_ends_the_program__does_not_end_the_loop(
    slot: Slot, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def ends() -> None:
        raise error

    async def careless(payload: Any) -> None:
        background = asyncio.create_task(ends())
        await asyncio.wait([background])

    async def works(payload: Any) -> None:
        await asyncio.sleep(0)

    assert isinstance(slot.run(careless), Succeeded)
    assert isinstance(slot.run(works), Succeeded)
    assert "the event loop goes on" in caplog.text


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


class Thing:
    """What a job has in its hands."""


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
    # The task that the loop has just finished is let go a moment later.
    assert isinstance(slot.run(has_none), Succeeded)
    gc.collect()
    assert [thing() for thing in kept] == [None] * 6


def test_blocking_coroutine__does_not_stop_plain_jobs(transactional_db: None) -> None:
    blocked, go_on = threading.Event(), threading.Event()

    async def blocks(payload: Any) -> None:
        blocked.set()
        go_on.wait(60)

    with open_slot() as one, open_slot() as another:
        future = one.start(blocks)
        assert blocked.wait(60)
        assert isinstance(another.run(lambda payload: None), Succeeded)
        go_on.set()
        future.result(60)


class TestCancelling:
    """The end of the grace period."""

    def cancelled(self, slot: Slot, function: Callable[..., Any]) -> Any:
        future = slot.start(function)
        assert STARTED.wait(60)
        slot.executor.cancel()
        return future.result(60)

    @pytest.fixture(autouse=True)
    def not_started(self) -> None:
        STARTED.clear()

    def test_coroutine__is_interrupted(self, slot: Slot) -> None:
        told: list[Any] = []

        def receiver(*, job: Any, **kwargs: Any) -> None:
            told.append(job.id)

        async def sleeps(payload: Any) -> None:
            STARTED.set()
            await asyncio.Event().wait()

        signals.job_interrupted.connect(receiver)
        try:
            assert isinstance(self.cancelled(slot, sleeps), Interrupted)
        finally:
            signals.job_interrupted.disconnect(receiver)
        assert told == [1]

    def test_coroutine_that_finishes_all_the_same__is_a_success(self, slot: Slot) -> None:
        async def insists(payload: Any) -> None:
            STARTED.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)

        assert isinstance(self.cancelled(slot, insists), Succeeded)

    def test_coroutine_that_fails_over_it__is_interrupted(self, slot: Slot) -> None:
        async def stumbles(payload: Any) -> None:
            STARTED.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise RuntimeError("could not clean up") from None

        assert isinstance(self.cancelled(slot, stumbles), Interrupted)

    def test_coroutine_that_asks_for_a_retry__gets_it(self, slot: Slot) -> None:
        async def asks(payload: Any) -> None:
            STARTED.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise RetryLater(60) from None

        outcome = self.cancelled(slot, asks)
        assert isinstance(outcome, Failed)
        assert outcome.delay == 60.0

    def test_transaction_of_an_interrupted_job__does_not_stay_open(
        self, slot: Slot, raw_connection: Callable[..., RawConnection]
    ) -> None:
        async def sleeps(payload: Any) -> None:
            await aexecute("begin")
            STARTED.set()
            await asyncio.Event().wait()

        assert isinstance(self.cancelled(slot, sleeps), Interrupted)
        assert slot.call(lambda: connection.connection) is None

    def test_plain_job__runs_on(self, slot: Slot) -> None:
        go_on = threading.Event()

        def works(payload: Any) -> None:
            STARTED.set()
            go_on.wait(60)

        future = slot.start(works)
        assert STARTED.wait(60)
        slot.executor.cancel()
        go_on.set()
        assert isinstance(future.result(60), Succeeded)


STARTED = threading.Event()


def test_close__does_not_wait_for_a_coroutine_that_blocks_the_loop(transactional_db: None) -> None:
    blocked, go_on = threading.Event(), threading.Event()

    async def blocks(payload: Any) -> None:
        blocked.set()
        go_on.wait(120)

    with open_slot() as slot:
        future = slot.start(blocks)
        assert blocked.wait(60)
        began = time.monotonic()
        slot.executor.close(0.0)
        assert time.monotonic() - began < 60
        go_on.set()
        future.result(60)
