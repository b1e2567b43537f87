"""Who a worker is."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

from django_graphile_worker.sql.workers import WORKER_PREFIX


def new_worker_id() -> str:
    """Never the same twice: a restarted process must not be taken for the dead one."""
    return f"{WORKER_PREFIX}{secrets.token_hex(9)}"


def about_this_process(version: str) -> dict[str, Any]:
    """What people want to know of a worker they see in a list."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "version": version}
