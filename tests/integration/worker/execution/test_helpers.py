"""helpers: queries and new jobs from a task."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.worker.execution.helpers import Helpers
from django_graphile_worker.worker.outcomes import Succeeded
from tests.support.slot import Slot

pytestmark = pytest.mark.django_db(transaction=True)


def test_helpers__query_and_add_from_async_code(slot: Slot) -> None:
    rows: list[Any] = []

    async def works(payload: Any, helpers: Helpers) -> None:
        rows.extend(await helpers.aquery("select %s::int as answer", [42]))
        rows.append((await helpers.aadd_job("another", {"a": 1})).task_identifier)

    assert isinstance(slot.run(works), Succeeded)
    assert rows == [{"answer": 42}, "another"]


def test_helpers__query_and_add_from_plain_code(slot: Slot) -> None:
    rows: list[Any] = []

    def works(payload: Any, helpers: Helpers) -> None:
        rows.extend(helpers.query("select 1 as one union all select 2"))
        rows.append(helpers.query("set local work_mem = '1MB'"))
        rows.append(helpers.add_job("another").task_identifier)
        rows.append(helpers.connection.alias)

    assert isinstance(slot.run(works), Succeeded)
    assert rows == [{"one": 1}, {"one": 2}, [], "another", "default"]
