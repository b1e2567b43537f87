"""Makes naive times aware, as Django's fields do."""

from __future__ import annotations

import sys
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType

from django.conf import settings
from django.utils import timezone

from django_graphile_worker.exceptions import InvalidJobError

Time = datetime | timedelta | str

_PACKAGE = f"{Path(__file__).parents[1]}/"


def aware(run_at: datetime | timedelta | None, *, name: str = "run_at") -> datetime | timedelta | None:
    """Return the time as Django's DateTimeField stores it: a naive time gets the default time zone, with a warning."""
    if not isinstance(run_at, datetime) or not settings.USE_TZ or timezone.is_aware(run_at):
        return run_at
    warnings.warn(
        f"{name} received a naive datetime ({run_at}) while time zone support is active.",
        RuntimeWarning,
        stacklevel=_level_of_the_caller(),
    )
    return timezone.make_aware(run_at, timezone.get_default_timezone())


def from_text(value: Time | None, *, name: str = "run_at") -> datetime | timedelta | None:
    """Return the value, and a text in the ISO format as a datetime."""
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise InvalidJobError(f"{name}: {value!r} is not a time like '2026-02-02T02:02:02Z'.") from error


def _level_of_the_caller() -> int:
    """Return the stack level of the first frame outside this package, like ``skip_file_prefixes`` of Python 3.12."""
    level, frame = 0, sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and isinstance(frame.f_back, FrameType):
        level, frame = level + 1, frame.f_back
    return level + 1
