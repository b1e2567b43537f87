"""When a failed job is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker.attempts import attempts_made
from django_graphile_worker.exceptions import ConfigurationError, PayloadError, PermanentFailure, RetryLater
from django_graphile_worker.signals import job_permanently_failed
from django_graphile_worker.worker.execution.retry import MAX_DELAY
from tests.support.slot import Slot, make_task, open_slot


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


class GoneError(LookupError):
    pass


def vanishes(payload: Any) -> None:
    raise GoneError("order 5")


async def vanishes_later(payload: Any) -> None:
    raise GoneError("order 5")


@pytest.mark.parametrize("function", [vanishes, vanishes_later], ids=["def", "async"])
def test_give_up_on__fails_at_once__and_the_error_says_why(slot: Slot, function: Any) -> None:
    outcome = slot.failure(make_task(function, give_up_on=(KeyError, LookupError), backoff=timedelta(seconds=5)))
    assert (outcome.permanent, outcome.delay) == (True, None)
    assert "Not tried again after attempt 1 of 25.\nNot retried because of give_up_on." in outcome.error
    assert not slot.failure(make_task(function, give_up_on=(ValueError,))).permanent


def test_retry_for__are_the_only_exceptions_that_are_retried(slot: Slot) -> None:
    assert not slot.failure(make_task(vanishes, retry_for=(LookupError,))).permanent
    outcome = slot.failure(make_task(vanishes, retry_for=(ConnectionError,)))
    assert outcome.permanent
    assert "Not retried because of retry_for." in outcome.error
    assert slot.failure(make_task(vanishes, retry_for=(LookupError,), give_up_on=(GoneError,))).permanent

    def later(payload: Any) -> None:
        raise RetryLater(7)

    assert slot.failure(make_task(later, retry_for=(ConnectionError,))).delay == 7.0


def test_give_up_on__of_a_batch_if_every_failed_item_is_of_it(slot: Slot) -> None:
    def items(payload: Any) -> list[Any]:
        return [{"gone": GoneError("x"), "broken": ValueError("y")}.get(item) for item in payload]

    task = make_task(items, give_up_on=(GoneError,))
    assert slot.failure(task, '["gone", "fine"]').permanent
    mixed = slot.failure(task, '["gone", "broken", "fine"]')
    assert (mixed.permanent, mixed.payload_text) == (False, '["gone","broken"]')


def twice_as_long(attempts: int, error: BaseException) -> float | None:
    return 2.0 * attempts if isinstance(error, GoneError) else None


PATH = "tests.unit.worker.execution.test_retry"


def test_settings__say_it_for_all_tasks__and_a_task_goes_before_them() -> None:
    with open_slot(give_up_on=[f"{PATH}.GoneError", ZeroDivisionError], backoff=5) as slot:
        outcome = slot.failure(vanishes)
        assert outcome.permanent
        assert "Not retried because of the setting GIVE_UP_ON." in outcome.error
        assert not slot.failure(make_task(vanishes, retry_for=(GoneError,))).permanent
        assert slot.failure(breaks).delay == 5.0
        assert slot.failure(make_task(breaks, backoff=lambda attempts, error: None)).delay == 5.0
        assert slot.failure(make_task(breaks, backoff=timedelta(seconds=9))).delay == 9.0
    with open_slot(backoff=f"{PATH}.twice_as_long") as slot:
        assert (slot.failure(vanishes, attempts=3).delay, slot.failure(breaks).delay) == (6.0, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"give_up_on": ["shop.Gone"]},
            r"GIVE_UP_ON.*expected exception classes, got 'shop.Gone', which is an Im",
        ),
        ({"give_up_on": [f"{PATH}.breaks"]}, r"GIVE_UP_ON.*expected exception classes, got"),
        ({"give_up_on": "shop.Gone"}, r"GIVE_UP_ON.*expected a list of exception classes, or of their dotted paths"),
        ({"backoff": f"{PATH}.PATH"}, r"BACKOFF.*expected a function, got"),
        ({"backoff": -1}, r"BACKOFF.*expected None, a function, the dotted path of a function, or a number of seconds"),
        ({"max_attempts": 0}, r"MAX_ATTEMPTS.*expected a whole number from 1 to 32767, got 0"),
    ],
)
def test_settings_that_cannot_be_used__are_refused_at_the_start(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message), open_slot(**settings):
        pass


def test_signal_and_log__say_that_the_job_was_given_up(slot: Slot, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def remember(given_up_by: str, **kwargs: Any) -> None:
        seen.append(given_up_by)

    job_permanently_failed.connect(remember)
    try:
        slot.failure(make_task(vanishes, give_up_on=(GoneError,)))
        slot.failure(vanishes, attempts=25)
    finally:
        job_permanently_failed.disconnect(remember)
    assert seen == ["give_up_on", ""]
    assert "(attempt 1 of 25), not retried because of give_up_on: GoneError: order 5" in caplog.text
