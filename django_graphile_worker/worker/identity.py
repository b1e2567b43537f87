"""The id of a worker, and the facts about its process."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

from django_graphile_worker.sql.workers import WORKER_PREFIX


def new_worker_id() -> str:
    """Return an id that was never used before: a restarted worker must not be mistaken for the dead worker."""
    return f"{WORKER_PREFIX}{secrets.token_hex(9)}"


def about_this_process(version: str) -> dict[str, Any]:
    """Return the facts about this process that the lists of workers show."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "version": version}
