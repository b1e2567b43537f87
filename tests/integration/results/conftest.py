from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_graphile_worker.results.waiting import close_listeners


@pytest.fixture(autouse=True)
def closed_listeners() -> Iterator[None]:
    """Close what waits for results: an open connection would keep the test database from being dropped."""
    yield
    close_listeners()
