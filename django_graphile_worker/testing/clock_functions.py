"""What Django's functions for the present time do while the clock of a test is open.

The body of ``moved_now()`` runs in place of the body of ``django.utils.timezone.now()``, with the global names of that
module, so it imports what it needs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any


def moved_now() -> datetime:
    # Late import: this code runs with the global names of another module.
    from django_graphile_worker.testing.simulated_clock import current

    assert current is not None
    return current()


def moved_as_postgresql(expression: Any, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
    """Return the time of the clock as SQL, in place of the present time of the database."""
    # Late import: the module above imports this one.
    from django_graphile_worker.testing.simulated_clock import current

    assert current is not None
    return "%s::timestamptz", [current.shown.isoformat()]
