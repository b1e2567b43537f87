"""Flags that are asked for at every claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.factories import make_job
from tests.support.stepped_worker import Build, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def test_forbidden_flags_may_be_asked_for_asynchronously(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    async def forbidden() -> list[str]:
        return ["heavy"]

    make_job("quick", {"n": 1}, flags={"heavy": True})
    make_job("quick", {"n": 2})
    run_all(runner(forbidden_flags=forbidden), wait_until)
    assert ran == [2]
