"""The server process of a connection: its pid, and how to end it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections

from tests.conftest import RawConnection


def execute(statement: str, alias: str = "default") -> Any:
    """Execute a statement on Django's connection of this thread, and return its first row or None."""
    with connections[alias].cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone() if cursor.description else None


def backend_pid(alias: str = "default") -> int:
    return int(execute("select pg_backend_pid()", alias)[0])


class Pids:
    """A task that records the server process of its connection."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, payload: Any) -> None:
        self.seen.append(backend_pid())


def terminate(observer: RawConnection, pid: int, wait_until: Callable[..., None]) -> None:
    """End a server process, and wait until it has ended."""
    observer.execute("select pg_terminate_backend(%s)", [pid])
    wait_until(lambda: not observer.execute("select 1 from pg_stat_activity where pid = %s", [pid]).fetchone())
