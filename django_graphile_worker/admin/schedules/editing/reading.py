"""Reads a schedule and the record of its changes, as far as the user may see them."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.schedules.editing.definition_values import (
    ChangedField,
    differences,
    label,
    payload_text,
)
from django_graphile_worker.admin.schedules.permissions import SchedulePermissionsAdmin
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.schedules.changes import RecordedChange, changes_of

# The record keeps as many for each schedule.
MOST_CHANGES = 100


class ScheduleReadingAdmin(SchedulePermissionsAdmin):
    """What the pages of one schedule have in common."""

    def read_schedule(self, request: HttpRequest, object_id: str) -> Schedule | None:
        """Return a schedule that the user may see; None if there is none."""
        # The permission to see recurring tasks opens the list only.
        self.require(self.sees_schedules(request))
        try:
            key = int(object_id)
        except ValueError:
            return None
        if not 0 < key < 2**63:
            return None
        alias = databases.selected_alias(request)
        with databases.reading(alias):
            found: Schedule | None = self.get_queryset(request).using(alias).filter(pk=key).first()
        return found

    def redirect_missing(self, request: HttpRequest) -> HttpResponse:
        messages.warning(request, _("This schedule does not exist. It may have been deleted."))
        return HttpResponseRedirect(self.url_or_index(request, "schedule"))

    def recorded_changes(self, request: HttpRequest, schedule_id: int, number: int) -> list[RecordedChange]:
        """Return the latest changes; they have payloads only for a user who may see payloads."""
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            return changes_of(
                cursor,
                schedule_id,
                number=number,
                schema=schema,
                with_payloads=self.has_view_payload_permission(request),
            )

    def changes_since(self, request: HttpRequest, schedule: Schedule, revision: int | None) -> list[ChangedField]:
        """Return what is different from an earlier revision of a schedule, field by field."""
        number = max((schedule.revision or 0) - (revision or 0), 1)
        changes = self.recorded_changes(request, schedule.pk, min(number, MOST_CHANGES))
        if not changes or changes[0].after is None:
            return []
        found = differences(changes[-1].before, changes[0].after)
        if any(change.is_payload_changed for change in changes):
            found.append(payload_difference(changes[-1].payload_before, changes[0].payload_after))
        return found


def payload_difference(before: str | None, after: str | None) -> ChangedField:
    """Return both payloads without their secrets; neither of them if the user may not see them, or they are large."""
    return ChangedField(label("payload"), payload_text(before), payload_text(after), is_code=True)
