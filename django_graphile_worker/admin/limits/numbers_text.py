"""The numbers of a limit in words."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from django_graphile_worker.admin.audit import Message
from django_graphile_worker.limits import LimitNumbers


def numbers_parts(numbers: LimitNumbers) -> list[Message]:
    """Return the parts of a list, such as "3 at once", "100/m" and "burst 20", for the log."""
    parts = []
    if numbers.concurrency is not None:
        parts.append(Message(gettext_noop("%(number)s at once"), {"number": numbers.concurrency}))
    if numbers.rate is not None:
        parts.append(Message("%(rate)s", {"rate": str(numbers.rate)}))
    if numbers.burst is not None:
        parts.append(Message(gettext_noop("burst %(number)s"), {"number": numbers.burst}))
    return parts or [Message(gettext_noop("no limit"))]


def numbers_text(numbers: LimitNumbers) -> str:
    return ", ".join(map(str, numbers_parts(numbers)))
