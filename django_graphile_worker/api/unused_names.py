"""Deletes the names of queues and tasks that no job uses, a few at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from django.db import OperationalError, connections, transaction

from django_graphile_worker.api.connection import QueueConnection
from django_graphile_worker.sql import unused_names
from django_graphile_worker.sql.errors import sqlstate
from django_graphile_worker.sql.inspection import limits
from django_graphile_worker.sql.overlap import is_outside_transactions
from django_graphile_worker.sql.unused_names import Watermark

LOCK_NOT_AVAILABLE = "55P03"
# The number of attempts to get the lock, and the pause between them in seconds, in which other sessions can add jobs.
TRIES = 5
PAUSE = 0.05
# The number of searches without a deletion, because jobs got other names in the meantime, before giving up.
MOST_SEARCHES_IN_VAIN = 5

T = TypeVar("T")
Delete = Callable[[Sequence[int], Watermark], int]


class Find(Protocol):
    def __call__(self, *, after: int) -> list[int]: ...


class IncompleteError(Exception):
    """Only ``deleted`` of the unused names of a kind ("queues" or "tasks") could be deleted."""

    def __init__(self, kind: str, deleted: int = 0) -> None:
        super().__init__(kind, deleted)
        self.kind = kind
        self.deleted = deleted


class NamesDeletion:
    """The deletion of one kind of names: ``find`` returns names without jobs, and ``delete`` deletes some of them."""

    def __init__(self, kind: str, queue: QueueConnection, find: Find, delete: Delete) -> None:
        self._kind = kind
        self._queue = queue
        self._find = find
        self._delete = delete
        self._deleted = 0

    def run(self) -> int:
        """Delete all unused names, and return their number."""
        self._run()
        return self._deleted

    def _run(self) -> None:
        after, searches_in_vain = 0, 0
        since = self._locked(self._watermark)
        while ids := self._find(after=after):
            # The next search sees jobs that this search may have missed, so it needs a later watermark.
            reached, since = self._delete_portions(ids, since)
            searches_in_vain = 0 if reached else searches_in_vain + 1
            if searches_in_vain == MOST_SEARCHES_IN_VAIN:
                raise IncompleteError(self._kind, self._deleted)
            after = reached or after

    def _delete_portions(self, ids: Sequence[int], since: Watermark) -> tuple[int | None, Watermark]:
        """Delete ids in portions; return the last deleted id, or None, and the watermark for the next search."""
        reached, latest = None, since
        for portion in _portions(ids):
            deleted, latest = self._locked(partial(self._delete_portion, portion, since))
            if deleted is None:
                break
            self._deleted += deleted
            reached = portion[-1]
        return reached, latest

    def _delete_portion(self, portion: Sequence[int], since: Watermark) -> tuple[int | None, Watermark]:
        latest = self._watermark()
        if latest.moved != since.moved:
            return None, latest
        return self._delete(portion, since), latest

    def _watermark(self) -> Watermark:
        return unused_names.watermark(self._queue.cursor, schema=self._queue.schema)

    def _locked(self, act: Callable[[], T]) -> T:
        for _ in range(TRIES):
            try:
                return self._act_under_lock(act)
            except OperationalError as error:
                if sqlstate(error) != LOCK_NOT_AVAILABLE:
                    raise
            # Transactions of the site hold the lock, and no event tells when they end.
            time.sleep(PAUSE)
        raise IncompleteError(self._kind, self._deleted)

    def _act_under_lock(self, act: Callable[[], T]) -> T:
        """Hold the lock in a transaction of its own, or until the end of the caller's transaction if there is one."""
        cursor, alias, schema, *_ = self._queue
        is_outermost = is_outside_transactions(connections[alias])
        with transaction.atomic(using=alias):
            if is_outermost:
                unused_names.begin_read_committed(cursor)
            before = limits.change_settings(cursor, unused_names.SETTINGS)
            unused_names.lock_names(cursor, schema=schema)
            result = act()
            limits.change_settings(cursor, before)
        return result


def _portions(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), unused_names.MOST_DELETED):
        yield ids[start : start + unused_names.MOST_DELETED]
