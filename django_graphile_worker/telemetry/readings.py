"""Reads the gauges of a database at most once in a few seconds, however many scrapers ask for them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from django.db import connections, transaction

from django_graphile_worker.routing import Place
from django_graphile_worker.sql.inspection import statement_limits
from django_graphile_worker.sql.inspection.gauges import Gauges, read_gauges

logger = logging.getLogger("django_graphile_worker.worker")

# Seconds for which a reading, also one that failed, is shown again.
CACHE_SECONDS = 5.0
# Seconds that the statement may take. Prometheus waits for 10.
READ_TIMEOUT = 2.0


def limited_gauges(cursor: Any, place: Place) -> Gauges:
    """Return the gauges, in a transaction of the caller, whose statements are limited from now on."""
    before = statement_limits.limit_statements(cursor, timeout=READ_TIMEOUT)
    gauges = read_gauges(cursor, schema=place.settings.schema, timeout=place.settings.worker_timeout)
    statement_limits.change_settings(cursor, before)
    return gauges


def gauges_of(place: Place) -> Gauges:
    """Return the gauges, read on Django's connection."""
    with transaction.atomic(using=place.using), connections[place.using].cursor() as cursor:
        return limited_gauges(cursor, place)


def cached_gauges(places: Iterable[Place]) -> dict[str, Gauges | None]:
    """Return the gauges of these places by their labels, read on Django's connections; None without an answer."""
    return {place.label: _cached(place).get() for place in places}


def _cached(place: Place) -> CachedGauges:
    key = (place.label, place.settings.schema)
    return _caches.setdefault(key, CachedGauges(lambda: gauges_of(place)))


class CachedGauges:
    """The gauges of one database, and until when they are shown."""

    def __init__(self, read: Callable[[], Gauges], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._gauges: Gauges | None = None
        self._until = 0.0
        self._has_failed = False

    def get(self) -> Gauges | None:
        """Return the gauges; None if the database did not answer."""
        with self._lock:
            if self._clock() >= self._until:
                try:
                    self._gauges = self._read()
                    self._has_failed = False
                except Exception as error:
                    # The scrape shows that the database did not answer, and everything else.
                    self._gauges = None
                    if not self._has_failed:
                        logger.warning("The gauges of the metrics cannot be read: %s", " ".join(str(error).split()))
                    self._has_failed = True
                self._until = self._clock() + CACHE_SECONDS
            return self._gauges


_caches: dict[tuple[str, str], CachedGauges] = {}


def clear_cache() -> None:
    """Forget what was read."""
    _caches.clear()
