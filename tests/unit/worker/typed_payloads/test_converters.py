"""Payload parameters with a type of their own."""

from __future__ import annotations

import datetime
import enum
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import pytest

from django_graphile_worker.worker.outcomes import Succeeded
from django_graphile_worker.worker.typed_payloads import converters
from tests.support.slot import Slot

received: list[Any] = []


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Line:
    sku: str
    quantity: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    id: uuid.UUID
    lines: list[Line]
    total: Decimal
    placed_at: datetime.datetime
    due: datetime.date | None = None
    size: Size = Size.SMALL
    kind: Literal["sale", "gift"] = "sale"
    weight: float = 0.0
    tags: set[str] = field(default_factory=set)
    point: tuple[int, int] = (0, 0)
    by_shop: dict[str, Line] = field(default_factory=dict)
    parent: Order | None = None
    patience: datetime.timedelta = datetime.timedelta(0)
    note: Any = None


def take_order(payload: Order) -> None:
    received.append(payload)


def take_lines(payload: list[Line]) -> list[Any]:
    received.append(payload)
    return [ValueError("no stock") if line.sku == "b" else None for line in payload]


ORDER = (
    '{"id": "0b0e5a26-6a0c-4f0e-9c56-4c6f0a4b7a11", "lines": [{"sku": "a"}, {"sku": "b", "quantity": 2}],'
    ' "total": "9.90", "placed_at": "2026-01-02T03:04:05Z"%s}'
)


@pytest.fixture(autouse=True)
def forget() -> None:
    received.clear()


def test_dataclass__is_made_from_the_payload(slot: Slot) -> None:
    more = (
        ', "due": "2026-02-03", "size": "l", "kind": "gift", "weight": 2, "tags": ["x", "x"], "point": [1, 2],'
        ' "by_shop": {"here": {"sku": "c"}}, "parent": null, "patience": 90, "note": {"free": true}'
    )
    assert isinstance(slot.run(take_order, ORDER % more), Succeeded)
    (order,) = received
    assert order == Order(
        id=uuid.UUID("0b0e5a26-6a0c-4f0e-9c56-4c6f0a4b7a11"),
        lines=[Line("a"), Line("b", 2)],
        total=Decimal("9.90"),
        placed_at=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        due=datetime.date(2026, 2, 3),
        size=Size.LARGE,
        kind="gift",
        weight=2,
        tags={"x"},
        point=(1, 2),
        by_shop={"here": Line("c")},
        patience=datetime.timedelta(seconds=90),
        note={"free": True},
    )


@pytest.mark.parametrize(
    ("payload_text", "complaint"),
    [
        ("[]", "expected an object (Order) at $, got an array"),
        ("null", "expected an object (Order) at $, got null"),
        ('{"lines": [], "total": 1, "placed_at": "2026-01-02"}', "expected the field $.id (Order), got none"),
        (ORDER % ', "weihgt": 1', "got $.weihgt. Did you mean 'weight'?"),
        (ORDER % ', "due": "soon"', "expected a date in ISO 8601 at $.due, got another string"),
        (ORDER % ', "size": "m"', "expected one of 's', 'l' at $.size, got another string"),
        (ORDER % ', "kind": "loan"', "expected one of 'sale', 'gift' at $.kind, got another string"),
        (ORDER % ', "weight": true', "expected a number at $.weight, got true or false"),
        (ORDER % ', "point": [1]', "expected an array of 2 items at $.point, got 1."),
        (ORDER % ', "tags": [1]', "expected a string at $.tags[0], got a whole number"),
        (ORDER % ', "by_shop": {"x": {"quantity": 1}}', "expected the field $.by_shop.x.sku (Line), got none"),
        (ORDER.replace('"quantity": 2', '"quantity": "2"') % "", "expected a whole number at $.lines[1].quantity"),
        (ORDER.replace('"9.90"', '"many"') % "", "expected a decimal number at $.total, got another string"),
        (ORDER % ', "parent": {"id": 1}', "$.parent"),
    ],
)
def test_payload_that_does_not_fit__fails_the_job_and_names_the_field(
    slot: Slot, payload_text: str, complaint: str
) -> None:
    error = slot.failure(take_order, payload_text).error
    assert "PayloadError" in error.splitlines()[0]
    assert complaint in error
    assert "Traceback" not in error
    assert received == []


def test_list_of_dataclasses__goes_with_batch_results(slot: Slot) -> None:
    outcome = slot.failure(take_lines, '[{"sku":"a"},{"sku":"b"}]')
    assert received == [[Line("a"), Line("b")]]
    assert outcome.payload_text == '[{"sku":"b"}]'


def test_first_use_by_two_threads__builds_no_half_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    convert, find = converters.converter_for(Line), converters._converter
    assert convert is not None
    others: list[Any] = []

    def interrupted(annotation: Any) -> Any:
        # The type of the second field: the first field has its converter by now.
        if annotation is int and not others:
            others.append(None)
            with ThreadPoolExecutor(1) as pool:
                others.append(pool.submit(convert, {"sku": "a", "quantity": 2}, "$").result(60))
        return find(annotation)

    monkeypatch.setattr(converters, "_converter", interrupted)
    assert convert({"sku": "b"}, "$") == Line("b")
    assert others[1] == Line("a", 2)
