from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stepped_worker import note, own_tasks


@pytest.fixture
def note_is_the_only_task() -> Iterator[None]:
    """Register a single task: ``note``, which fails if its payload is "fail"."""
    with own_tasks(note):
        yield
