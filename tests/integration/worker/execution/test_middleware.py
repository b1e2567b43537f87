"""GRAPHILE_WORKER["MIDDLEWARE"]: around every job, sync and async in any mixture."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.core.exceptions import MiddlewareNotUsed
from django.db import connection
from django.utils.decorators import async_only_middleware, sync_and_async_middleware, sync_only_middleware

from django_graphile_worker.exceptions import BatchFailure, ConfigurationError, PermanentFailure
from django_graphile_worker.jobs import Job
from django_graphile_worker.worker.outcomes import CompletedAtomically, Failed, Succeeded
from tests.support.slot import make_task, open_slot

HERE = __name__
EVENTS: list[Any] = []

GetResult = Callable[[Job], Any]


@pytest.fixture(autouse=True)
def forget() -> None:
    EVENTS.clear()


def plain(get_result: GetResult) -> GetResult:
    def middleware(job: Job) -> Any:
        EVENTS.append(("plain in", threading.current_thread().name[:8]))
        result = get_result(job)
        EVENTS.append(("plain out", result))
        return result

    return middleware


@sync_only_middleware
def sync_only(get_result: GetResult) -> GetResult:
    return plain(get_result)


@async_only_middleware
def async_only(get_result: Any) -> Any:
    async def middleware(job: Job) -> Any:
        EVENTS.append(("async in", threading.current_thread().name[:8]))
        result = await get_result(job)
        EVENTS.append(("async out", result))
        return result

    return middleware


def undeclared_async(get_result: Any) -> Any:
    return async_only(get_result)


@sync_and_async_middleware
def both(get_result: Any) -> Any:
    return async_only(get_result) if iscoroutinefunction(get_result) else plain(get_result)


class ClassBased:
    async_capable = True

    def __init__(self, get_result: Any) -> None:
        self.get_result = get_result
        self.is_async = iscoroutinefunction(get_result)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, job: Job) -> Any:
        EVENTS.append(("class in", self.is_async))
        return self.get_result(job)


class AsyncCallable:
    sync_capable, async_capable = False, True

    def __init__(self, get_result: Any) -> None:
        self.get_result = get_result

    async def __call__(self, job: Job) -> Any:
        EVENTS.append("callable in")
        return await self.get_result(job)


def failing(get_result: GetResult) -> GetResult:
    def middleware(job: Job) -> Any:
        raise PermanentFailure("not on my watch")

    return middleware


def failing_late(get_result: GetResult) -> GetResult:
    def middleware(job: Job) -> Any:
        get_result(job)
        raise ValueError("after all")

    return middleware


def rewriting(get_result: GetResult) -> GetResult:
    return lambda job: get_result(dataclasses.replace(job, payload=[item * 10 for item in job.payload]))


def decrypting(get_result: GetResult) -> GetResult:
    return lambda job: get_result(dataclasses.replace(job, payload=[{"card": "4242"}, {"card": "4243"}]))


def dropping(get_result: GetResult) -> GetResult:
    def middleware(job: Job) -> None:
        get_result(job)

    return middleware


@async_only_middleware
def dropping_async(get_result: Any) -> Any:
    async def middleware(job: Job) -> None:
        await get_result(job)

    return middleware


def hurrying(get_result: GetResult) -> GetResult:
    def middleware(job: Job) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(get_result, job).result(60)

    return middleware


def forgiving(get_result: GetResult) -> GetResult:
    def middleware(job: Job) -> Any:
        try:
            return get_result(job)
        except (ValueError, BatchFailure):
            EVENTS.append("forgiven")
            return None

    return middleware


def not_used(get_result: GetResult) -> GetResult:
    raise MiddlewareNotUsed


def counting_builds(get_result: GetResult) -> GetResult:
    EVENTS.append("built")
    return get_result


not_callable = 42


def raises(get_result: Any) -> Any:
    raise KeyError("an API key")


def returns_nothing(get_result: GetResult) -> None:
    return None


def through(*names: str, **settings: Any) -> Any:
    return open_slot(middleware=[f"{HERE}.{name}" for name in names], **settings)


def sync_task(payload: Any) -> str:
    EVENTS.append(("task", threading.current_thread().name[:8]))
    return "result"


async def async_task(payload: Any) -> str:
    await asyncio.sleep(0)
    EVENTS.append(("task", threading.current_thread().name[:8]))
    return "result"


KINDS = ["plain", "sync_only", "async_only", "undeclared_async", "both", "ClassBased", "AsyncCallable"]


@pytest.mark.parametrize("task", [sync_task, async_task])
@pytest.mark.parametrize(("outer", "inner"), list(itertools.product(KINDS, ["plain", "async_only", "both"])))
def test_every_mixture__runs_the_task_once_and_passes_its_result_out(outer: str, inner: str, task: Any) -> None:
    with through(outer, inner) as slot:
        for _ in range(2):
            assert isinstance(slot.run(task), Succeeded)
    place = "slot" if task is sync_task else "graphile"
    tasks = [event for event in EVENTS if event[0] == "task"]
    assert [name.startswith(place) for _, name in tasks] == [True, True]
    outs = [event for event in EVENTS if event[0] in ("plain out", "async out")]
    assert all(result == "result" for _, result in outs)


def test_first_in_the_list__is_outermost() -> None:
    with through("ClassBased", "plain") as slot:
        slot.run(sync_task)
    assert [event[0] for event in EVENTS] == ["class in", "plain in", "task", "plain out"]


def test_failing__fails_the_job() -> None:
    with through("failing") as slot:
        outcome = slot.failure(sync_task)
    assert outcome.permanent
    assert "not on my watch" in outcome.error


def test_errors_of_the_task__can_be_handled() -> None:
    def breaks(payload: Any) -> None:
        raise ValueError("boom")

    with through("forgiving") as slot:
        assert isinstance(slot.run(breaks), Succeeded)
    assert EVENTS == ["forgiven"]


def test_rewriting__gives_the_task_another_payload_and_helpers_the_same() -> None:
    def looks(payload: Any, helpers: Any) -> list[Any]:
        EVENTS.append((payload, helpers.job.payload))
        return [None, ValueError("two")]

    with through("rewriting") as slot:
        outcome = slot.failure(looks, "[1, 2]")
    assert EVENTS == [([10, 20], [10, 20])]
    assert outcome.payload_text == "[2]"


@pytest.mark.parametrize("payload", ['{"enc": "secret"}', '"1,2]"', "[1]", "[1,2,3]", "null"])
def test_rewritten_payload_of_another_shape__never_takes_the_rows_place(payload: str) -> None:
    with through("decrypting") as slot:
        outcome = slot.failure(lambda payload: [None, ValueError("two")], payload)
    assert outcome.error.startswith("ValueError: two (1 of 2 items failed)")
    assert outcome.payload_text is None


async def breaks() -> None:
    raise ValueError("lost")


@pytest.mark.parametrize("kind", ["dropping", "dropping_async"])
@pytest.mark.parametrize(
    ("left", "error"),
    [
        (breaks, "ValueError: lost"),
        (lambda: [breaks()], "ValueError: lost"),
        (lambda: ValueError("lost"), "ValueError: lost"),
        (lambda: (item for item in [1]), "a_task returned a generator"),
        (lambda: map(str, [1]), "a_task returned a map"),
    ],
    ids=["coroutine", "list of coroutines", "exception", "generator", "map"],
)
def test_what_a_plain_task_left_undone__is_not_lost_with_a_result_that_middleware_drops(
    kind: str, left: Any, error: str
) -> None:
    with through(kind) as slot:
        assert error in slot.failure(lambda payload: left(), '{"a": 1}').error


def test_middleware_that_leaves_its_thread__gets_an_error() -> None:
    with through("hurrying") as slot:
        error = slot.failure(sync_task).error
    assert "get_result() was called in another thread than the middleware." in error


@pytest.mark.parametrize("kind", ["plain", "async_only", "ClassBased"])
def test_batch_failure__is_raised_through_middleware(kind: str) -> None:
    async def half(payload: Any) -> list[Any]:
        return [None, ValueError("two")]

    with through(kind) as slot:
        assert slot.failure(half, "[1, 2]").payload_text == "[2]"
    assert [event[0] for event in EVENTS if "out" in event[0]] == []


def test_unused_middleware__is_left_out() -> None:
    with through("not_used", "plain") as slot:
        slot.run(sync_task)
    assert [event[0] for event in EVENTS] == ["plain in", "task", "plain out"]


def test_chain__is_built_once_for_each_kind_of_task() -> None:
    with through("counting_builds") as slot:
        for _ in range(3):
            slot.run(sync_task)
            slot.run(async_task)
    assert EVENTS.count("built") == 2


@pytest.mark.parametrize("name", ["missing", "not_callable"])
def test_mistake__is_reported_at_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r'GRAPHILE_WORKER\["MIDDLEWARE"\]'):
        with through(name):
            pass


@pytest.mark.django_db(transaction=True)
class TestWithADatabase:
    @pytest.fixture
    def table(self) -> Iterator[None]:
        self.execute("create table public.effects (a int)")
        yield
        self.execute("drop table public.effects")

    def execute(self, statement: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone() if cursor.description else None

    @pytest.mark.usefixtures("table")
    def test_middleware_that_fails_late__rolls_an_atomic_task_back(self) -> None:
        def writes(payload: Any) -> None:
            self.execute("insert into public.effects values (1)")

        with through("failing_late") as slot:
            assert isinstance(slot.run(make_task(writes, atomic=True)), Failed)
        assert self.execute("select count(*) from public.effects") == (0,)

    @pytest.mark.parametrize("outer", ["async_only", "plain"])
    def test_atomic_task__is_inside_its_transaction_under_any_middleware(self, outer: str) -> None:
        from tests.support.factories import make_job
        from tests.support.slot import TOKEN, make_claim

        def looks(payload: Any) -> None:
            EVENTS.append(connection.in_atomic_block)

        with through(outer) as slot:
            claim = make_claim(
                id=make_job("a_task", attempts=1, locked_by=TOKEN),
                task_id=slot.task_id(make_task(looks, atomic=True)),
            )
            assert isinstance(slot.start_claim(claim).result(20), CompletedAtomically)
        assert True in EVENTS

    def test_async_middleware__uses_the_slots_connection(self) -> None:
        with through("querying") as slot:
            slot.run(lambda payload: EVENTS.append(self.execute("select pg_backend_pid()")))
        assert len(set(EVENTS)) == 1


@async_only_middleware
def querying(get_result: Any) -> Any:
    def pid() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            return cursor.fetchone()

    async def middleware(job: Job) -> Any:
        EVENTS.append(await sync_to_async(pid)())
        result = await get_result(job)
        EVENTS.append(await sync_to_async(pid)())
        return result

    return middleware


def test_factory_that_raises__is_named_with_what_it_raised() -> None:
    expected = rf"expected '{re.escape(HERE)}\.raises' to return a callable, got KeyError: "
    with pytest.raises(ConfigurationError, match=expected), through("raises"):
        pass


def test_factory_that_returns_nothing__is_named_by_its_path() -> None:
    expected = rf"expected '{re.escape(HERE)}\.returns_nothing' to return a callable, got None"
    with pytest.raises(ConfigurationError, match=expected), through("returns_nothing"):
        pass
