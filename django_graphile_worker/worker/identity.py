"""The id of a worker, and what it says about its process."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

from django_graphile_worker.sql.workers import WORKER_PREFIX


def new_worker_id() -> str:
    """Return an id that was never used before: a restarted process must not be taken for the dead one."""
    return f"{WORKER_PREFIX}{secrets.token_hex(9)}"


def about_this_process(version: str) -> dict[str, Any]:
    """Return what the lists of workers show about a process."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "version": version}
