"""Figures that may take the database long: each is read within a short time, or is that of the last reading."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeVar

from django.utils import timezone

from django_graphile_worker.admin import databases

# Seconds that the database may take for one figure: dead rows that no VACUUM can remove yet make each count slow.
LONGEST_READ = 0.3

Value = TypeVar("Value")


class Reading(NamedTuple):
    """A figure, and when it was read; None if it took too long each time."""

    value: Any
    read_at: datetime | None


class BoundedReader:
    """A reader of figures that may take the database long: in place of one that does, it has that of the last time."""

    def __init__(self, alias: str, last: Mapping[str, Reading]) -> None:
        self._alias = alias
        self.readings = dict(last)
        # The figures that took too long now.
        self._missed: list[str] = []
        self._transaction: AbstractContextManager[databases.Session] | None = None
        self._session: databases.Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        """End the transaction, which is that of all figures until one takes too long."""
        if self._transaction is not None:
            transaction, self._transaction, self._session = self._transaction, None, None
            transaction.__exit__(*error)

    def read(self, name: str, query: Callable[[Any, str], Value], otherwise: Any) -> Value:
        """Return what the query reads; ``otherwise`` if it has never ended in time."""
        try:
            self.readings[name] = Reading(self._queried(query), timezone.now())
        except databases.PageTimeoutError:
            self._missed.append(name)
            self.readings.setdefault(name, Reading(otherwise, None))
        value: Value = self.readings[name].value
        return value

    def _queried(self, query: Callable[[Any, str], Value]) -> Value:
        if self._session is None:
            self._transaction = databases.reading(self._alias, timeout=LONGEST_READ)
            self._session = self._transaction.__enter__()
        try:
            return query(*self._session)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    @property
    def is_late(self) -> bool:
        """Whether a figure took too long."""
        return bool(self._missed)

    @property
    def late_since(self) -> datetime | None:
        """When the oldest figure was read that stands in for one that took too long."""
        read_at = [self.readings[name].read_at for name in self._missed]
        return min((each for each in read_at if each is not None), default=None)
