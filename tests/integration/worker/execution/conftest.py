from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.slot import Slot, open_slot


@pytest.fixture
def slot(transactional_db: None) -> Iterator[Slot]:
    with open_slot() as slot:
        yield slot
