"""The event loop of async tasks: what it survives, how it cancels and closes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from django_graphile_worker import signals
from django_graphile_worker.exceptions import RetryLater
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Succeeded
from tests.conftest import RawConnection
from tests.support.backends import execute
from tests.support.slot import Slot, SlotWithoutThread, open_slot

pytestmark = pytest.mark.django_db(transaction=True)


aexecute = sync_to_async(execute)


@pytest.fixture(params=[Slot, SlotWithoutThread], ids=["with a thread", "without a thread"])
def slot(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Slot]:
    with open_slot(request.param) as slot:
        yield slot


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
    assert "the event loop continues" in caplog.text


def test_blocking_coroutine__does_not_stop_plain_jobs(transactional_db: None) -> None:
    blocked, go_on = threading.Event(), threading.Event()

    async def blocks(payload: Any) -> None:
        blocked.set()
        go_on.wait(60)

    with open_slot() as slot, open_slot() as other_slot:
        future = slot.start(blocks)
        assert blocked.wait(60)
        assert isinstance(other_slot.run(lambda payload: None), Succeeded)
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
        interrupted: list[Any] = []

        def receiver(*, job: Any, **kwargs: Any) -> None:
            interrupted.append(job.id)

        async def sleeps(payload: Any) -> None:
            STARTED.set()
            await asyncio.Event().wait()

        signals.job_interrupted.connect(receiver)
        try:
            assert isinstance(self.cancelled(slot, sleeps), Interrupted)
        finally:
            signals.job_interrupted.disconnect(receiver)
        assert interrupted == [1]

    def test_coroutine_that_finishes_all_the_same__is_a_success(self, slot: Slot) -> None:
        async def insists(payload: Any) -> None:
            STARTED.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)

        assert isinstance(self.cancelled(slot, insists), Succeeded)

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
        slot.executor.event_loop.close(0.0)
        assert time.monotonic() - began < 60
        go_on.set()
        future.result(60)
