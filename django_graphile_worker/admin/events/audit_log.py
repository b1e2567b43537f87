"""What users changed in the admin: the entries of the admin's own log about the models of this package."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.http import HttpRequest

from django_graphile_worker.admin import audit, formatting
from django_graphile_worker.models import Job


def may_view(request: HttpRequest) -> bool:
    """Return whether the user may see the entries of all users."""
    return bool(request.user.has_perm("admin.view_logentry"))


def read_entries(*, limit: int, before: int | None) -> list[LogEntry]:
    """Return entries, the newest first, before the entry with this id."""
    entries = LogEntry.objects.filter(content_type__app_label=Job._meta.app_label)
    if before is not None:
        entries = entries.filter(pk__lt=before)
    return list(entries.select_related("user", "content_type").order_by("-pk")[:limit])


def job_id_of(entry: LogEntry) -> str | None:
    """Return the id of the job that an entry is about; None if it is about several jobs or another object."""
    is_of_job = entry.content_type is not None and entry.content_type.model == Job._meta.model_name
    return entry.object_id if is_of_job and (entry.object_id or "").isdecimal() else None


def row(entry: LogEntry) -> dict[str, Any]:
    """Return an entry as the template shows it."""
    return {
        "time": formatting.relative_time(entry.action_time),
        "user": entry.user.get_username(),
        "object": entry.object_repr,
        "message": audit.message_of(entry),
    }
