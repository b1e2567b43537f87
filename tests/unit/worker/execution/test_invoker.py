"""How tasks are invoked, and what becomes of their results."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.worker.outcomes import Failed, Succeeded
from tests.support.slot import Slot, make_claim


def test_task_that_is_gone__fails_the_job_with_the_way_out(slot: Slot) -> None:
    outcome = slot.start_claim(make_claim(task_id=999)).result()
    assert isinstance(outcome, Failed)
    assert "UnknownTaskError" in outcome.error
    assert "Restart the worker" in outcome.error


@pytest.mark.parametrize("result", [None, 0, {"sum": 5}, [1, 2]])
def test_outcome__keeps_what_the_task_returned(slot: Slot, result: Any) -> None:
    async def later(payload: Any) -> Any:
        return result

    for function in (lambda payload: result, lambda payload, helpers: result, later):
        outcome = slot.run(function)
        assert isinstance(outcome, Succeeded)
        assert outcome.result is result


def test_function_that_returns_a_coroutine__is_awaited(slot: Slot) -> None:
    done: list[Any] = []

    async def inner() -> None:
        done.append(True)

    assert isinstance(slot.run(lambda payload: inner()), Succeeded)
    assert done == [True]


def test_coroutine_inside_a_coroutine__is_awaited_too(slot: Slot) -> None:
    done: list[Any] = []

    async def innermost() -> None:
        done.append(True)

    async def inner() -> Any:
        return innermost()

    async def outer(payload: Any) -> Any:
        return inner()

    assert isinstance(slot.run(outer), Succeeded)
    assert done == [True]


def test_function_that_returns_a_generator__fails_as_nothing_of_it_has_run(slot: Slot) -> None:
    def generator() -> Any:
        yield

    async def async_generator() -> Any:
        yield

    async def forgetful(payload: Any) -> Any:
        return async_generator()

    for function in (
        lambda payload: generator(),
        lambda payload, helpers: async_generator(),
        lambda payload: [generator()],
        forgetful,
    ):
        error = slot.failure(function, "[1]").error.splitlines()[0]
        assert error.endswith(
            "InvalidTypeError: expected a_task to return when it is done, got a generator: nothing of its body has "
            "run. Loop over it inside the task."
        )
