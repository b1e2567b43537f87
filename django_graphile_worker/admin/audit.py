"""Who did what: entries of the admin's own log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest

from django_graphile_worker.admin.redaction import redact_text

# Up to so many objects get an entry each, which their history shows; more share one that names them.
MOST_ENTRIES = 100
LONGEST_MESSAGE = 10_000

__all__ = ["ADDITION", "CHANGE", "DELETION", "note", "note_many"]


def note(request: HttpRequest, model: type[Model], object_id: str, name: str, message: str, flag: int = CHANGE) -> None:
    """One entry about one object."""
    LogEntry.objects.create(**_entry(request, model, object_id, name, message, flag))


def note_many(
    request: HttpRequest, model: type[Model], ids: Iterable[int], number: int, message: str, flag: int = CHANGE
) -> None:
    """Entries about jobs that one action has changed."""
    ids = list(ids)
    if number <= MOST_ENTRIES and len(ids) == number:
        entries = [_entry(request, model, str(each), f"#{each}", message, flag) for each in ids]
    else:
        named = ", ".join(map(str, ids)) + (", …" if number > len(ids) else "")
        entries = [_entry(request, model, "", f"{number:,} jobs", f"{message} Jobs: {named}", flag)]
    LogEntry.objects.bulk_create([LogEntry(**entry) for entry in entries])


def _entry(
    request: HttpRequest, model: type[Model], object_id: str, name: str, message: str, flag: int
) -> dict[str, Any]:
    return {
        "user_id": request.user.pk,
        "content_type_id": ContentType.objects.get_for_model(model, for_concrete_model=False).pk,
        "object_id": object_id,
        "object_repr": redact_text(name)[:200],
        "action_flag": flag,
        "change_message": redact_text(message)[:LONGEST_MESSAGE],
    }
