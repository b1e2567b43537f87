"""Django's connections of the calling thread while it runs a job for a test."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

from django.db import connections
from psycopg.pq import TransactionStatus

from django_graphile_worker.exceptions import LeftoverStateError
from django_graphile_worker.testing.in_process.virtual_autocommit import VirtualAutocommit
from django_graphile_worker.worker.django_connections import transaction_status


class JobConnections:
    """All open connections: those in a transaction of the test look as if they were in autocommit mode."""

    def __init__(self) -> None:
        self._virtual: dict[str, VirtualAutocommit] = {}
        self._plain: list[Any] = []

    def __enter__(self) -> JobConnections:
        for wrapper in connections.all(initialized_only=True):
            if wrapper.connection is None:
                continue
            if wrapper.in_atomic_block and wrapper.features.uses_savepoints:
                self._virtual[wrapper.alias] = VirtualAutocommit(wrapper)
                self._virtual[wrapper.alias].begin()
            elif not wrapper.in_atomic_block:
                self._plain.append(wrapper)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for virtual in self._virtual.values():
                stack.callback(virtual.end)

    def roll_back_leftovers(self) -> None:
        """Roll back transactions that a job left open; raise LeftoverStateError if there are any."""
        left = [alias for alias, virtual in self._virtual.items() if virtual.roll_back_leftover()]
        left += [wrapper.alias for wrapper in self._plain if _roll_back(wrapper)]
        if left:
            databases = ", ".join(f"database {alias!r}" for alias in left)
            raise LeftoverStateError(
                f"expected the task to leave its connections as it found them, got {databases}: a transaction open: it "
                "was rolled back. Use transaction.atomic()."
            )


def _roll_back(wrapper: Any) -> bool:
    if wrapper.connection is None:
        return False
    is_open = wrapper.in_atomic_block or not wrapper.autocommit
    if wrapper.vendor == "postgresql":
        is_open = is_open or transaction_status(wrapper) in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    if is_open:
        wrapper.in_atomic_block, wrapper.needs_rollback = False, False
        wrapper.savepoint_ids, wrapper.atomic_blocks = [], []
        wrapper.rollback()
        wrapper.set_autocommit(True)
    return bool(is_open)
