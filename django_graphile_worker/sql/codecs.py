"""What makes any stored value readable to Python: expressions, and readers of what comes."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver

FIRST = "timestamptz '0001-01-02 00:00:00+00'"
LAST = "timestamptz '9999-12-30 23:59:59.999999+00'"
EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


def as_text(column: str) -> str:
    """Leave the decoding to the reader, who can do it value by value."""
    return f"{column}::pg_catalog.text"


def within_python_years(column: str) -> str:
    """Bring infinities and far years to the nearest time that is in years 1 to 9999 in every time zone."""
    return f"case when {column} < {FIRST} then {FIRST} when {column} > {LAST} then {LAST} else {column} end"


@cache
def time_reader() -> Callable[[float], datetime]:
    """What reads seconds since 1970 as the site wants its times; chosen once, as asking the settings takes long."""
    if settings.USE_TZ:
        return _to_datetime
    # Here, as most sites have no need of it.
    from django_graphile_worker.sql.naive import naive

    return lambda epoch: naive(_to_datetime(epoch))


@receiver(setting_changed, dispatch_uid="graphile_worker.time_reader")
def _forget_reader(*, setting: str, **kwargs: Any) -> None:
    if setting == "USE_TZ":
        time_reader.cache_clear()


def _to_datetime(epoch: float) -> datetime:
    """A date that Python cannot hold becomes the nearest one it can."""
    if math.isnan(epoch):
        return LATEST
    try:
        return datetime.fromtimestamp(epoch, UTC)
    except (OverflowError, ValueError, OSError):
        return LATEST if epoch > 0 else EARLIEST
