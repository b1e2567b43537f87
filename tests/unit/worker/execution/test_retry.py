"""When a failed job is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker.attempts import attempts_made
from django_graphile_worker.exceptions import PayloadError, PermanentFailure, RetryLater
from django_graphile_worker.worker.execution.retry import MAX_DELAY
from tests.support.slot import Slot, make_task


def breaks(payload: Any) -> None:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("answer", "delay"),
    [(12, 12.0), (0, 0.0), (1.5, 1.5), (timedelta(minutes=2), 120.0), (None, None), (float("inf"), MAX_DELAY)],
)
def test_backoff_callable__may_give_seconds_a_timedelta_or_none(slot: Slot, answer: Any, delay: float | None) -> None:
    outcome = slot.failure(make_task(breaks, backoff=lambda attempts, error: answer))
    assert outcome.delay == delay
    assert "usual back-off" not in outcome.error


def test_backoff_timedelta__is_the_delay(slot: Slot) -> None:
    assert slot.failure(make_task(breaks, backoff=timedelta(seconds=30))).delay == 30.0


@pytest.mark.parametrize("answer", [-1, "soon", True, float("nan"), timedelta(seconds=-1)])
def test_backoff_that_makes_no_sense__is_replaced_by_the_usual_and_the_error_says_so(slot: Slot, answer: Any) -> None:
    outcome = slot.failure(make_task(breaks, backoff=lambda attempts, error: answer))
    assert outcome.delay is None
    assert outcome.error.startswith("ValueError: boom")
    assert "The usual back-off is used" in outcome.error


@pytest.mark.parametrize("mistake", [ZeroDivisionError("oops"), SystemExit("oops")])
def test_backoff_that_raises__is_replaced_by_the_usual_and_the_error_says_so(
    slot: Slot, mistake: BaseException
) -> None:
    def backoff(attempts: int, error: BaseException) -> float:
        raise mistake

    outcome = slot.failure(make_task(breaks, backoff=backoff))
    assert outcome.delay is None
    summary = f"{type(mistake).__name__}: oops"
    assert f"The usual back-off is used, as the task's own back-off failed: {summary}" in outcome.error


def test_retry_later__goes_before_backoff(slot: Slot) -> None:
    def later(payload: Any) -> None:
        raise RetryLater(7)

    assert slot.failure(make_task(later, backoff=timedelta(hours=1))).delay == 7.0


def group(*errors: BaseException) -> Any:
    def task(payload: Any) -> None:
        raise BaseExceptionGroup("several", errors)

    return task


def test_group_of_permanent_failures_alone__is_permanent(slot: Slot) -> None:
    assert slot.failure(group(PermanentFailure("a"), PermanentFailure("b"))).permanent
    assert slot.failure(group(PermanentFailure("a"), ExceptionGroup("inner", [PermanentFailure("b")]))).permanent
    assert not slot.failure(group(PermanentFailure("a"), ExceptionGroup("inner", [ValueError()]))).permanent
    assert not slot.failure(group(PermanentFailure("a"), RetryLater(5))).permanent


def test_group_of_which_all_ask_for_a_delay__gets_the_longest(slot: Slot) -> None:
    assert slot.failure(group(RetryLater(5), ExceptionGroup("inner", [RetryLater(9)]))).delay == 9.0
    assert slot.failure(group(RetryLater(5), ValueError())).delay is None


def test_task_group__counts_as_its_tasks_do(slot: Slot) -> None:
    async def never() -> None:
        raise PermanentFailure("gone")

    async def together(payload: Any) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(never())

    assert slot.failure(together).permanent


def test_item_that_raised_a_group__counts_as_its_members_do(slot: Slot) -> None:
    failed = ExceptionGroup("item", [PermanentFailure("a")])
    assert slot.failure(lambda payload: [failed, PermanentFailure("b")], "[1, 2]").permanent


def test_delay_beyond_the_calendar__is_bounded(slot: Slot) -> None:
    def later(payload: Any) -> None:
        raise RetryLater(timedelta.max)

    assert slot.failure(later).delay == MAX_DELAY


def test_permanent_failure__asks_no_backoff(slot: Slot) -> None:
    def never(payload: Any) -> None:
        raise PermanentFailure("gone")

    def backoff(attempts: int, error: BaseException) -> float:
        raise AssertionError("asked")

    outcome = slot.failure(make_task(never, backoff=backoff))
    assert outcome.permanent
    assert "asked" not in outcome.error


def test_permanent_failure__names_the_last_attempt(slot: Slot) -> None:
    def gives_up(payload: Any) -> None:
        raise PermanentFailure("stolen")

    error = slot.failure(gives_up, attempts=2).error
    assert "\n\nNot tried again after attempt 2 of 25.\n\n" in error
    assert attempts_made(25, 25, error) == 2
    assert "Not tried again" not in slot.failure(breaks, attempts=2).error


@dataclass
class Receipt:
    order: int


def test_payload_that_does_not_fit_its_type__is_not_tried_again(slot: Slot) -> None:
    def typed(payload: Receipt) -> None: ...

    def typed_batch(payload: list[Receipt]) -> None: ...

    outcome = slot.failure(typed, '{"order": "x"}')
    assert outcome.permanent
    assert outcome.error.startswith("django_graphile_worker.exceptions.PayloadError: payload: expected a whole number")
    assert "Not tried again after attempt 1 of 25." in outcome.error
    assert slot.failure(typed_batch, '[{"order": 1}, {}]').permanent


def test_payload_error_of_a_job_that_the_task_adds__is_tried_again(slot: Slot) -> None:
    def adds(payload: Any) -> None:
        raise PayloadError("payload: expected a finite number, got nan at $.price.")

    assert not slot.failure(adds).permanent


def test_retry_later__sets_the_delay(slot: Slot) -> None:
    def later(payload: Any) -> None:
        raise RetryLater(90, "rate limited")

    outcome = slot.failure(later)
    assert (outcome.delay, outcome.permanent) == (90.0, False)
    assert "rate limited" in outcome.error


def test_permanent_failure__leaves_no_attempt(slot: Slot) -> None:
    def never(payload: Any) -> None:
        raise PermanentFailure("no such customer")

    outcome = slot.failure(never)
    assert outcome.permanent
    assert "no such customer" in outcome.error


def test_backoff__is_asked_with_attempts_and_error(slot: Slot) -> None:
    asked: list[Any] = []

    def backoff(attempts: int, error: BaseException) -> float:
        asked.append((attempts, error))
        return 5 * attempts

    error = ValueError()

    def breaks(payload: Any) -> None:
        raise error

    assert slot.failure(make_task(breaks, backoff=backoff), attempts=3).delay == 15.0
    assert asked == [(3, error)]
