"""How task functions are called."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from django_graphile_worker.worker.execution.helpers import Helpers
from django_graphile_worker.worker.outcomes import Succeeded
from tests.support.slot import Slot

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


received: list[Any] = []


def nothing() -> None:
    received.append(())


def payload_only(payload: Any) -> None:
    received.append((payload,))


def positional_only(payload: Any, helpers: Any, /) -> None:
    received.append((payload, helpers))


def with_helpers(payload: Any, helpers: Helpers) -> None:
    received.append((payload, helpers))


def with_another_name(payload: Any, worker: Any) -> None:
    received.append((payload, worker))


def with_keyword_helpers(payload: Any, *, helpers: Any) -> None:
    received.append((payload, helpers))


def with_optional_helpers(payload: Any, helpers: Any = None) -> None:
    received.append((payload, helpers))


def with_an_option(payload: Any, dry_run: bool = False) -> None:
    received.append((payload, dry_run))


def with_anything(*args: Any, **kwargs: Any) -> None:
    received.append(args)


class Callee:
    def __call__(self, payload: Any, helpers: Any) -> None:
        received.append((payload, helpers))

    def method(self, payload: Any) -> None:
        received.append((payload,))


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nothing, []),
        (payload_only, ["payload"]),
        (lambda payload: received.append((payload,)), ["payload"]),
        (positional_only, ["payload", "helpers"]),
        (with_helpers, ["payload", "helpers"]),
        (with_another_name, ["payload", "helpers"]),
        (with_keyword_helpers, ["payload", "helpers"]),
        (with_optional_helpers, ["payload", "helpers"]),
        (with_an_option, ["payload", False]),
        (with_anything, ["payload"]),
        (Callee(), ["payload", "helpers"]),
        (Callee().method, ["payload"]),
        (functools.partial(with_an_option, dry_run=True), ["payload", True]),
        (decorated(with_helpers), ["payload", "helpers"]),
        (decorated(payload_only), ["payload"]),
    ],
)
def test_function__gets_what_it_asks_for(slot: Slot, function: Any, expected: list[Any]) -> None:
    received.clear()
    assert isinstance(slot.run(function, '"payload"'), Succeeded)
    (got,) = received
    assert ["helpers" if isinstance(value, Helpers) else value for value in got] == expected


def for_the_type_checker_alone(payload: Unknown) -> None:
    received.append(payload)


def test_annotation_that_cannot_be_resolved__leaves_the_payload_plain(
    slot: Slot, caplog: pytest.LogCaptureFixture
) -> None:
    received.clear()
    with caplog.at_level(logging.WARNING, "django_graphile_worker"):
        assert isinstance(slot.run(for_the_type_checker_alone, '{"a": 1}'), Succeeded)
    assert received == [{"a": 1}]
    assert "cannot be resolved" in caplog.text


def test_task_with_parameters_that_nothing_fills__fails_the_job(slot: Slot) -> None:
    def greedy(payload: Any, helpers: Any, more: Any) -> None: ...

    assert "also needs 'more'" in slot.failure(greedy).error


@dataclass
class Report:
    month: int


@dataclass
class ReportOfATick:
    month: int
    _cron: dict[str, Any] = field(default_factory=dict)


def typed(payload: Report) -> None:
    received.append(payload)


def typed_with_the_tick(payload: ReportOfATick) -> None:
    received.append(payload)


TICK = '"_cron": {"ts": "2026-11-15T04:00:00.000Z", "backfilled": false}'


def test_typed_payload_of_a_tick__has_what_the_crontab_adds_only_if_it_has_a_field_for_it(slot: Slot) -> None:
    received.clear()
    for function in (typed, typed_with_the_tick):
        assert isinstance(slot.run(function, f'{{"month": 5, {TICK}}}'), Succeeded)
    assert received == [Report(5), ReportOfATick(5, {"ts": "2026-11-15T04:00:00.000Z", "backfilled": False})]


def test_typed_payload_of_a_tick__is_checked_as_others_are(slot: Slot) -> None:
    assert "expected a whole number at $.month, got a string" in slot.failure(typed, f'{{"month": "5", {TICK}}}').error
