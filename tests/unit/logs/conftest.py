from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from django_graphile_worker.logs import receivers


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_graphile_worker")
    receivers._throttle.forget()


@pytest.fixture
def serve() -> Iterator[Callable[..., None]]:
    """Have the process work on these databases, too."""
    served: list[str] = []

    def add(*aliases: str) -> None:
        served.extend(aliases)
        receivers.served_databases.add(aliases)

    yield add
    receivers.served_databases.remove(served)
