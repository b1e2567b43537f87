from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import signals
from tests.support.slot import Slot, open_slot


@pytest.fixture
def slot(transactional_db: None) -> Iterator[Slot]:
    with open_slot() as slot:
        yield slot


@pytest.fixture
def leftovers() -> Iterator[list[str]]:
    """What jobs are reported to have left behind."""
    found: list[str] = []

    def note(leftovers: tuple[str, ...], **kwargs: Any) -> None:
        found.extend(leftovers)

    signals.leftover_state_found.connect(note)
    yield found
    signals.leftover_state_found.disconnect(note)


@pytest.fixture
def persistent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
