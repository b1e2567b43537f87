"""Times as Django treats them."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone


def aware(run_at: datetime | timedelta | None) -> datetime | timedelta | None:
    """Treat a naive time as Django's DateTimeField does."""
    if not isinstance(run_at, datetime) or not settings.USE_TZ or timezone.is_aware(run_at):
        return run_at
    warnings.warn(
        f"run_at received a naive datetime ({run_at}) while time zone support is active.",
        RuntimeWarning,
        stacklevel=2,
    )
    return timezone.make_aware(run_at, timezone.get_default_timezone())
