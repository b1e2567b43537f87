"""Arrays and objects: their keys, and what a set can hold."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from django_graphile_worker.worker.outcomes import Succeeded
from tests.support.slot import Slot

received: list[Any] = []


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Line:
    sku: str
    quantity: int = 1


@pytest.fixture(autouse=True)
def forget() -> None:
    received.clear()


@dataclass
class Keyed:
    prices: dict[int, Decimal] = field(default_factory=dict)
    ratios: dict[float, int] = field(default_factory=dict)
    answers: dict[bool, int] = field(default_factory=dict)
    days: dict[datetime.date, int] = field(default_factory=dict)
    sizes: dict[Size, int] = field(default_factory=dict)
    priorities: dict[Priority, int] = field(default_factory=dict)
    either: dict[int | None, int] = field(default_factory=dict)
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)


class Priority(enum.IntEnum):
    HIGH = 1


def take_keyed(payload: Keyed) -> None:
    received.append(payload)


def test_keys__are_made_from_the_text_that_json_made_of_them(slot: Slot) -> None:
    keyed = Keyed(
        prices={1: Decimal(2), -10: Decimal(3)},
        ratios={1.5: 1},
        answers={True: 1, False: 0},
        days={datetime.date(2026, 1, 2): 1},
        sizes={Size.LARGE: 1},
        priorities={Priority.HIGH: 1},
        either={None: 1, 2: 2},
        texts={"1": 1},
    )
    text = (
        '{"prices": {"1": 2, "-10": 3}, "ratios": {"1.5": 1}, "answers": {"true": 1, "false": 0},'
        ' "days": {"2026-01-02": 1}, "sizes": {"l": 1}, "priorities": {"1": 1}, "either": {"null": 1, "2": 2},'
        ' "texts": {"1": 1}}'
    )
    assert isinstance(slot.run(take_keyed, text), Succeeded)
    assert received == [keyed]
    assert {type(key) for key in received[0].prices} == {int}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"prices": {"x": 1}}', "expected a whole number at $.prices.x, got a string as the key."),
        ('{"prices": {"1.5": 1}}', 'expected a whole number at $.prices["1.5"], got a string as the key.'),
        ('{"days": {"1": 1}}', 'expected a date in ISO 8601 at $.days["1"], got another string as the key.'),
        ('{"pairs": {"[1, 2]": 1}}', "expected an array of 2 items at $.pairs"),
    ],
)
def test_key_that_does_not_fit__is_named(slot: Slot, text: str, complaint: str) -> None:
    assert complaint in slot.failure(take_keyed, text).error


def take_set(payload: set[Line]) -> None: ...


def test_set_of_what_no_set_can_hold__is_refused_with_its_place(slot: Slot) -> None:
    error = slot.failure(take_set, '[{"sku": "a"}]').error
    assert (
        "PayloadError: payload: expected a hashable item at $[0], got Line, which is not hashable. "
        "Annotate it as a list, or make its class frozen." in error
    )
