"""The page with the changes of a schedule, field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.admin.schedules.editing.definition_values import ChangedField, differences
from django_graphile_worker.admin.schedules.editing.reading import (
    MOST_CHANGES,
    ScheduleReadingAdmin,
    payload_difference,
)
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.schedules.changes import RecordedChange


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change as the page shows it."""

    time: SafeString | str
    exact_time: str
    by: str
    fields: tuple[ChangedField, ...] = ()
    is_deletion: bool = False
    is_addition: bool = False


class ScheduleHistoryAdmin(ScheduleReadingAdmin):
    """The record of changes. That of a deleted schedule is for superusers: nothing restricts it any more."""

    @explain_database_errors
    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        schedule = self.read_schedule(request, object_id)
        key = schedule.pk if schedule is not None else self._deleted_id(request, object_id)
        changes = [] if key is None else self.recorded_changes(request, key, MOST_CHANGES)
        if schedule is None and (not changes or changes[0].after is not None):
            return self.redirect_missing(request)
        name = schedule.name if schedule is not None else str(changes[0].before.get("name", ""))
        context = {
            "title": _("Changes of %(name)s") % {"name": name},
            "name": name,
            "changes": [_shown(change) for change in changes] + _addition(schedule, changes),
            "is_cut": _is_cut(schedule, changes),
            "sees_payload": self.has_view_payload_permission(request),
            "list_url": self.url(request, "schedule"),
            "schedule_url": "" if schedule is None else self.url(request, "schedule", "change", schedule.pk),
        }
        return self.render(request, "schedule_history.html", context)

    def _deleted_id(self, request: HttpRequest, object_id: str) -> int | None:
        is_superuser = bool(getattr(request.user, "is_superuser", False))
        return (
            int(object_id)
            if is_superuser and object_id.isascii() and object_id.isdigit() and len(object_id) < 19
            else None
        )


def _shown(change: RecordedChange) -> ShownChange:
    fields = [] if change.after is None else differences(change.before, change.after)
    if change.is_payload_changed:
        fields.append(payload_difference(change.payload_before, change.payload_after))
    return ShownChange(
        time=formatting.relative_time(change.changed_at),
        exact_time=formatting.exact_time(change.changed_at),
        by=change.changed_by,
        fields=tuple(fields),
        is_deletion=change.after is None,
    )


def _is_cut(schedule: Schedule | None, changes: list[RecordedChange]) -> bool:
    """Return whether there were more changes than the record has."""
    return len(changes) < (schedule.revision or 0) if schedule is not None else len(changes) == MOST_CHANGES


def _addition(schedule: Schedule | None, changes: list[RecordedChange]) -> list[ShownChange]:
    """Return the entry of the first day of a schedule; the record begins with the first change."""
    if schedule is None or _is_cut(schedule, changes):
        return []
    by = "" if changes else schedule.changed_by
    return [
        ShownChange(
            time=formatting.relative_time(schedule.created_at),
            exact_time=formatting.exact_time(schedule.created_at),
            by=by,
            is_addition=True,
        )
    ]
