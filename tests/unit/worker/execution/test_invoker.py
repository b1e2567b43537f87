"""How tasks are invoked, and what becomes of their results, also as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker import PermanentFailure, ResultError
from django_graphile_worker.worker.execution.invoker import encode_result
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
            "InvalidTypeError: a_task returned a generator, of which nothing has run. Loop over it inside the task."
        )


def test_value_that_json_cannot_hold__is_a_final_error_that_names_its_place() -> None:
    with pytest.raises(ResultError) as refused:
        encode_result("pay", {"orders": [1, {2}]}, max_size=1000)
    assert str(refused.value) == (
        "the result of pay: expected a value that JSON can hold, got set (pass a list) at $.orders[1]. Return plain "
        "values, or keep no result: @task(keep_result=False)."
    )
    assert isinstance(refused.value, PermanentFailure)
    assert isinstance(refused.value, TypeError)


def test_result_that_is_too_large__is_refused() -> None:
    with pytest.raises(ResultError, match="the result of pay: 13 bytes of JSON exceed the limit of 10"):
        encode_result("pay", "x" * 11, max_size=10)
