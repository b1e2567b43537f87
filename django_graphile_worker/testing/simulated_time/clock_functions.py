"""What Django's functions for the present time do while the clock of a test is open."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from django_graphile_worker import simulation


def as_django_has_it(moment: datetime) -> datetime:
    """Return an aware time as ``timezone.now()`` returns it: naive without ``USE_TZ``."""
    return moment if settings.USE_TZ else timezone.make_naive(moment, timezone.get_default_timezone())


def shown() -> datetime:
    """Return the time of the open clock."""
    assert simulation.now is not None
    return simulation.now()


def moved_now() -> datetime:
    """Return the time of the clock, in place of the present time of this process.

    This code runs in place of that of ``django.utils.timezone.now()``.
    """
    # Late import: it runs with the global names of another module.
    from django_graphile_worker.testing.simulated_time.clock_functions import as_django_has_it, shown

    return as_django_has_it(shown())


def moved_as_postgresql(expression: Any, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
    """Return the time of the clock as SQL, in place of the present time of the database."""
    return "%s::timestamptz", [shown().isoformat()]
