from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.worker_sql import WorkerSql


@pytest.fixture
def listener(committing_worker: Callable[..., WorkerSql]) -> WorkerSql:
    """Return a connection of its own that listens for added jobs."""
    listener = committing_worker()
    listener.query('listen "jobs:insert"')
    return listener
