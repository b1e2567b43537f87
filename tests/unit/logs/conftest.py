from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from django_graphile_worker.logs import receivers
from django_graphile_worker.logs.lines import served_databases


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, logger="django_graphile_worker")
    monkeypatch.setattr(receivers, "_throttle", receivers.Throttle())


@pytest.fixture
def serve() -> Iterator[Callable[..., None]]:
    """Have the process work on these databases, too."""
    served: list[str] = []

    def add(*aliases: str) -> None:
        served.extend(aliases)
        served_databases.add(aliases)

    yield add
    served_databases.remove(served)
