from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.stepped_worker import Build, Gate, stepped_workers


@pytest.fixture
def ran() -> list[Any]:
    """The numbers of the jobs of ``quick`` that have run, in order."""
    return []


@pytest.fixture
def gate() -> Gate:
    """What jobs of ``slow`` wait for."""
    return Gate()


@pytest.fixture
def runner(ran: list[Any], gate: Gate) -> Iterator[Build]:
    """A factory of workers with the tasks ``quick``, ``failing`` and ``slow``."""

    def quick(payload: Any) -> None:
        ran.append(payload.get("n"))

    def failing(payload: Any) -> None:
        raise ValueError("It does not work")

    def slow(payload: Any) -> None:
        gate(payload)

    with stepped_workers(quick, failing, slow) as make:
        yield make
        gate.may_end.set()
