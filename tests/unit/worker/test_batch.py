"""Array payloads: what failed is tried again, alone."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.exceptions import PermanentFailure, RetryLater
from django_graphile_worker.worker.batch import BatchFailure, remaining
from django_graphile_worker.worker.outcome import Interrupted, Succeeded
from tests.slot import Slot

ITEMS = '[ {"n": 1}, 2.50 ,"three",[4] ]'


def second_and_last_fail(payload: list[Any]) -> list[Any]:
    return ["fine", ValueError("two"), None, KeyError("four")]


def test_failed_items__stay_as_they_were_written(slot: Slot) -> None:
    outcome = slot.failure(second_and_last_fail, ITEMS)
    assert outcome.payload_text == "[2.50,[4]]"


def test_error__lists_each_failed_item(slot: Slot) -> None:
    error = slot.failure(second_and_last_fail, ITEMS).error
    assert error == "Batch failures: 2 of 4 items failed.\n[1] ValueError: two\n[3] KeyError: 'four'"


def test_error__has_the_tracebacks_of_items_that_were_raised(slot: Slot) -> None:
    async def one(item: int) -> None:
        raise ValueError(f"no {item}")

    async def each_by_itself(payload: list[int]) -> list[Any]:
        return [one(item) for item in payload]

    first, second, third = slot.failure(each_by_itself, "[1,2]").error.split("\n\n")
    assert first == "Batch failures: 2 of 2 items failed.\n[0] ValueError: no 1\n[1] ValueError: no 2"
    assert second.startswith("[0] Traceback (most recent call last):\n")
    assert second.endswith("\nValueError: no 1")
    assert third.startswith("[1] Traceback")


@pytest.mark.parametrize("results", [[1, 2], ["a", None], (None, None), "ab", {"a": 1}, 7])
def test_results_without_exceptions__are_a_success(slot: Slot, results: Any) -> None:
    assert isinstance(slot.run(lambda payload: results, "[1, 2]"), Succeeded)


def test_exceptions_for_a_payload_that_is_no_array__are_ignored(slot: Slot) -> None:
    assert isinstance(slot.run(lambda payload: [ValueError()], '{"a": 1}'), Succeeded)


def test_wrong_number_of_results__is_a_success_with_a_warning(slot: Slot, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "django_graphile_worker"):
        assert isinstance(slot.run(lambda payload: [ValueError()], "[1, 2]"), Succeeded)
    assert "returned 1 results for 2 items" in caplog.text


def test_payload_that_the_task_consumed__is_still_told_apart(slot: Slot) -> None:
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


def test_awaitables_of_a_plain_function__are_gathered_too(slot: Slot) -> None:
    async def one(item: int) -> None:
        await asyncio.sleep(0)
        if item == 3:
            raise SystemExit("three")

    assert slot.failure(lambda payload: [one(item) for item in payload], "[1,2,3]").payload_text == "[3]"


def test_awaitable_that_cancels_itself__is_a_failed_item(slot: Slot) -> None:
    async def one(item: int) -> None:
        if item == 1:
            raise asyncio.CancelledError

    assert slot.failure(lambda payload: [one(item) for item in payload], "[1,2]").payload_text == "[1]"


def test_permanent_failures_alone__are_permanent(slot: Slot) -> None:
    assert slot.failure(lambda payload: [PermanentFailure("a"), None], "[1, 2]").permanent
    assert not slot.failure(lambda payload: [PermanentFailure("a"), ValueError()], "[1, 2]").permanent


def test_longest_delay__counts_when_all_ask_for_one(slot: Slot) -> None:
    assert slot.failure(lambda payload: [RetryLater(5), RetryLater(9)], "[1, 2]").delay == 9.0
    assert slot.failure(lambda payload: [RetryLater(5), ValueError()], "[1, 2]").delay is None


def test_items_that_make_way_while_the_worker_stops__cost_no_attempt_and_go_back_alone(slot: Slot) -> None:
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


def test_very_many_failures__are_cut(slot: Slot) -> None:
    count = 5_000
    outcome = slot.failure(lambda payload: [ValueError("x" * 100)] * count, json.dumps(list(range(count))))
    assert len(outcome.error) <= 65_536
    assert json.loads(str(outcome.payload_text)) == list(range(count))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(st.lists(json_values, min_size=1), st.data(), st.sampled_from([None, 0, 3]), st.booleans())
def test_remaining__is_exactly_the_failed_items(items: list[Any], data: Any, indent: int | None, escaped: bool) -> None:
    failed = sorted(data.draw(st.sets(st.integers(0, len(items) - 1), min_size=1)))
    text = json.dumps(items, indent=indent, ensure_ascii=escaped)
    failure = BatchFailure({index: ValueError() for index in failed}, len(items))
    assert json.loads(str(remaining(text, failure))) == [items[index] for index in failed]
