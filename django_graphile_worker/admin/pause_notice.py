"""What every page says about pauses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.db import DatabaseError
from django.utils.translation import gettext as _

from django_graphile_worker import api
from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.sql.control import Pause

# A notice names this many pauses; the page of pauses has all of them.
MAX_NAMED = 10


def read_pauses(alias: str) -> Sequence[Pause]:
    """Return what is paused; nothing if it cannot be read, because the page itself is more important."""
    with suppress(DatabaseError, GraphileWorkerError, databases.PageTimeoutError), databases.reading(alias):
        return api.pauses(using=alias)
    return ()


def sentence(pause: Pause) -> str:
    """Return who has paused it, and why: "Paused by demo: Provider down"."""
    text = _("Paused by %(by)s") % {"by": pause.by} if pause.by else _("Paused")
    return _("%(paused)s: %(reason)s") % {"paused": text, "reason": pause.reason} if pause.reason else text


def shown(pause: Pause) -> dict[str, Any]:
    """Return a pause as the templates show it."""
    return {
        "kind": pause.kind.value,
        "name": pause.name,
        "since": formatting.relative_time(pause.paused_at),
        "until": None if pause.until is None else formatting.relative_time(pause.until),
        "by": pause.by,
        "reason": pause.reason,
    }
