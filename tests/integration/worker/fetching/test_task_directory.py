"""The names of tasks in the database."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from django_graphile_worker import add_job
from tests.support.stepped_worker import Build, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def test_a_task_name_that_was_cleaned_away_is_found_again(
    runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str, ran: list[Any]
) -> None:
    worker = runner()
    raw_connection().execute(f'delete from "{worker_schema}"._private_tasks'.encode())
    add_job("quick", {"n": 7})
    worker.directory._reviewed_at = -math.inf
    run_all(worker, wait_until)
    assert ran == [7]
