"""Dataclasses as payloads."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from django_graphile_worker import (
    add_job,
    run_once,
)
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Receipt:
    order: int
    lines: list[Receipt] = field(default_factory=list)


RECEIPTS: list[Receipt] = []


def print_receipt(payload: Receipt) -> None:
    RECEIPTS.append(payload)


def test_dataclass__arrives_as_it_was_given() -> None:
    receipt = Receipt(1, [Receipt(2)])
    with own_tasks(print_receipt):
        assert add_job("print_receipt", receipt).payload == {"order": 1, "lines": [{"order": 2, "lines": []}]}
        run_once()
    assert [receipt] == RECEIPTS
