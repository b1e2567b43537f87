"""The results of tasks. Of an array payload only the items that failed are tried again."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker import signals
from django_graphile_worker.exceptions import BatchFailure, PermanentFailure, RetryLater
from django_graphile_worker.worker.execution.results import remaining
from django_graphile_worker.worker.outcomes import Interrupted, Succeeded
from tests.support.slot import Slot

ITEMS = '[ {"n": 1}, 2.50 ,"three",[4] ]'


def second_and_last_fail(payload: list[Any]) -> list[Any]:
    return ["fine", ValueError("two"), None, KeyError("four")]


def test_failed_items__stay_as_they_were_written(slot: Slot) -> None:
    outcome = slot.failure(second_and_last_fail, ITEMS)
    assert outcome.payload_text == "[2.50,[4]]"


def test_error__begins_with_the_class_that_all_failures_have__so_that_errors_are_grouped_by_it(slot: Slot) -> None:
    def two_fail(payload: list[Any]) -> list[Any]:
        return [None, ValueError("two\nlines"), ValueError("three")]

    first, *_ = slot.failure(two_fail, "[1, 2, 3]").error.splitlines()
    assert first == "ValueError: two (2 of 3 items failed)"


def test_log_line_and_signal__name_the_causes(slot: Slot, caplog: pytest.LogCaptureFixture) -> None:
    sent: list[BaseException] = []

    def receive(error: BaseException, **kwargs: Any) -> None:
        sent.append(error)

    signals.job_failed.connect(receive)
    try:
        with caplog.at_level(logging.WARNING, "django_graphile_worker"):
            slot.failure(lambda payload: [ValueError("no such customer")], '["Ada"]')
    finally:
        signals.job_failed.disconnect(receive)
    (error,) = sent
    assert str(error) == "1 of 1 items failed: [0] ValueError: no such customer"
    assert isinstance(error, BatchFailure)
    assert error.__cause__ is error.failures[0]
    assert caplog.messages[-1].endswith("BatchFailure: 1 of 1 items failed: [0] ValueError: no such customer")


def test_text_of_many_failures__names_the_first_and_counts_the_rest() -> None:
    class Mute(Exception):  # noqa: N818 - a name for the text
        def __str__(self) -> str:
            raise RuntimeError("no message")

    failure = BatchFailure({0: KeyError(), 2: Mute(), 3: ValueError("a\nb"), 4: OSError(), 5: OSError()}, 9)
    assert str(failure) == (
        "5 of 9 items failed: [0] KeyError; [2] Mute: <its text could not be read>; [3] ValueError: a b; and 2 more"
    )
    assert str(pickle.loads(pickle.dumps(BatchFailure({0: KeyError()}, 2)))) == "1 of 2 items failed: [0] KeyError"


def test_error__has_the_tracebacks_of_items_that_were_raised(slot: Slot) -> None:
    async def one(item: int) -> None:
        raise ValueError(f"no {item}")

    async def each_by_itself(payload: list[int]) -> list[Any]:
        return [one(item) for item in payload]

    first, second, third = slot.failure(each_by_itself, "[1,2]").error.split("\n\n")
    assert first == "ValueError: no 1 (2 of 2 items failed)\n[0] ValueError: no 1\n[1] ValueError: no 2"
    assert second.startswith("[0] Traceback (most recent call last):\n")
    assert second.endswith("\nValueError: no 1")
    assert third.startswith("[1] Traceback")


@pytest.mark.parametrize("results", [[1, 2], ["a", None], (None, None), "ab", {"a": 1}, 7])
def test_results_without_exceptions__are_a_success(slot: Slot, results: Any) -> None:
    assert isinstance(slot.run(lambda payload: results, "[1, 2]"), Succeeded)


OTHER_PAYLOADS = ['{"a": 1}', "null", "7", '"text"', "[1]", "[1,2,3,4]"]


async def push(item: int) -> None:
    await asyncio.sleep(0)
    if item:
        raise ValueError(f"no {item}")


def plainly(payload: Any) -> list[Any]:
    return [push(0), push(1), push(2)]


async def on_the_loop(payload: Any) -> tuple[Any, ...]:
    return push(0), push(1), push(2)


@pytest.mark.parametrize("payload", OTHER_PAYLOADS)
@pytest.mark.parametrize("function", [plainly, on_the_loop])
def test_what_awaitables_raised__fails_a_job_without_an_item_for_each(
    slot: Slot, function: Callable[..., Any], payload: str
) -> None:
    outcome = slot.failure(function, payload)
    assert outcome.error.startswith("ExceptionGroup: 2 of 3 results are failures (2 sub-exceptions)")
    assert "ValueError: no 1" in outcome.error
    assert "ValueError: no 2" in outcome.error
    assert outcome.payload_text is None


@pytest.mark.parametrize("payload", OTHER_PAYLOADS)
def test_what_one_awaitable_raised__is_the_jobs_error(slot: Slot, payload: str) -> None:
    outcome = slot.failure(lambda payload: [push(0), push(5)], payload)
    assert outcome.error.startswith("ValueError: no 5")
    assert "Traceback" in outcome.error


def test_what_awaitables_raised__keeps_its_meaning(slot: Slot) -> None:
    async def say(error: Exception) -> None:
        raise error

    def all_of(*errors: Exception) -> Callable[..., Any]:
        return lambda payload: [say(error) for error in errors]

    assert slot.failure(all_of(PermanentFailure("a"))).permanent
    assert slot.failure(all_of(PermanentFailure("a"), PermanentFailure("b"))).permanent
    assert not slot.failure(all_of(PermanentFailure("a"), ValueError())).permanent
    assert slot.failure(all_of(RetryLater(5), RetryLater(9))).delay == 9.0
    assert slot.failure(all_of(RetryLater(5), ValueError())).delay is None


def test_exceptions_returned_for_a_payload_that_is_no_array__fail_the_job(slot: Slot) -> None:
    assert slot.failure(lambda payload: [ValueError("one")], '{"a": 1}').error == "ValueError: one"
    error = slot.failure(lambda payload: [ValueError("one"), None, KeyError("two")], '{"a": 1}').error
    assert error.startswith("ExceptionGroup: 2 of 3 results are failures")
    assert "ValueError: one" in error
    assert "KeyError: 'two'" in error


@pytest.mark.parametrize("payload", ["[1, 2]", "{}"])
def test_exception_that_is_returned_instead_of_raised__fails_the_job(slot: Slot, payload: str) -> None:
    assert slot.failure(lambda payload: ValueError("returned"), payload).error == "ValueError: returned"
    assert slot.failure(lambda payload: PermanentFailure("returned"), payload).permanent


def test_exception_class__counts_as_the_exception_that_raise_would_make_of_it(slot: Slot) -> None:
    outcome = slot.failure(lambda payload: [None, ValueError, RetryLater], "[1, 2, 3]")
    assert outcome.payload_text == "[2,3]"
    assert "[1] ValueError\n[2] TypeError: " in outcome.error
    assert slot.failure(lambda payload: ValueError, "[1]").error == "ValueError"


@pytest.mark.parametrize("make", [partial(map, str), partial(filter, str), zip], ids=["map", "filter", "zip"])
def test_lazy_iterator__is_refused_as_nothing_of_it_has_run(slot: Slot, make: Callable[..., Any]) -> None:
    name = type(make([])).__name__
    for function in (make, lambda payload: [make(payload)]):
        error = slot.failure(function, "[1]").error
        assert f"a_task returned a {name}, of which nothing has run." in error


def test_wrong_number_of_results__is_a_success_with_a_warning(slot: Slot, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "django_graphile_worker"):
        assert isinstance(slot.run(lambda payload: ["fine"], "[1, 2]"), Succeeded)
    assert "returned 1 results for 2 items" in caplog.text


def test_wrong_number_of_results_with_an_exception__fails_the_whole_job(slot: Slot) -> None:
    outcome = slot.failure(lambda payload: [ValueError("one")], "[1, 2]")
    assert (outcome.error, outcome.payload_text) == ("ValueError: one", None)


def test_payload_that_the_task_consumed__is_still_split_into_items(slot: Slot) -> None:
    def consumes(payload: list[Any]) -> list[Any]:
        return [ValueError() if payload.pop(0) == 2 else None for _ in range(3)]

    assert slot.failure(consumes, "[1, 2, 3]").payload_text == "[2]"


def test_awaitables__are_gathered(slot: Slot) -> None:
    barrier_passed: list[int] = []

    async def one(item: int, barrier: asyncio.Barrier) -> None:
        await barrier.wait()
        barrier_passed.append(item)
        if item == 2:
            raise ValueError("two")

    async def all_at_once(payload: list[int]) -> list[Any]:
        barrier = asyncio.Barrier(len(payload))
        return [one(item, barrier) for item in payload]

    outcome = slot.failure(all_at_once, "[1,2,3]")
    assert outcome.payload_text == "[2]"
    assert sorted(barrier_passed) == [1, 2, 3]


def test_items_that_stop_as_asked_while_the_worker_stops__cost_no_attempt_and_are_returned_alone(slot: Slot) -> None:
    def does_the_first(payload: list[Any]) -> list[Any]:
        return [None, RetryLater(0), RetryLater(0)]

    assert slot.failure(does_the_first, "[1, 2.50, 3]").delay == 0
    slot.executor.abort()
    outcome = slot.run(does_the_first, "[1, 2.50, 3]")
    assert isinstance(outcome, Interrupted)
    assert outcome.payload_text == "[2.50,3]"


@pytest.mark.parametrize("other", [RetryLater(1), ValueError("two"), PermanentFailure("two")])
def test_an_item_that_failed_otherwise_while_the_worker_stops__counts(slot: Slot, other: Exception) -> None:
    slot.executor.abort()
    assert slot.failure(lambda payload: [RetryLater(0), other], "[1, 2]").payload_text == "[1,2]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=12,
)


@given(st.lists(json_values, min_size=1), st.data(), st.sampled_from([None, 0, 3]), st.booleans())
def test_remaining__is_exactly_the_failed_items(items: list[Any], data: Any, indent: int | None, escaped: bool) -> None:
    failed = sorted(data.draw(st.sets(st.integers(0, len(items) - 1), min_size=1)))
    text = json.dumps(items, indent=indent, ensure_ascii=escaped)
    failure = BatchFailure({index: ValueError() for index in failed}, len(items))
    assert json.loads(str(remaining(text, failure))) == [items[index] for index in failed]
