"""The changes of a schedule, field by field: the page of its history, and what a form tells of a change in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar

from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import translation
from django.utils.dateparse import parse_datetime, parse_duration
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.jobs.job_contents import to_json
from django_graphile_worker.admin.pages import TEMPLATES, explain_database_errors
from django_graphile_worker.admin.schedules.actions import ScheduleActionsAdmin
from django_graphile_worker.models import Schedule
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.redaction import redact
from django_graphile_worker.schedules.times import zone_of
from django_graphile_worker.schedules.words import interval_text
from django_graphile_worker.sql.schedules.changes import RecordedChange, changes_of

# The definition, in the order of the form.
DEFINITION = (
    "name", "task", "payload", "description", "is_enabled", "paused_until", "cron", "interval", "run_at", "time_zone",
    "starts_at", "ends_at", "missed", "missed_within", "overlap", "queue_name", "priority", "max_attempts", "job_key",
)  # fmt: skip
TIMES = frozenset({"paused_until", "run_at", "starts_at", "ends_at"})
INTERVALS = frozenset({"interval", "missed_within"})
CHOICES: Mapping[str, Any] = {"missed": Schedule.Missed, "overlap": Schedule.Overlap}
MAX_PAYLOAD = 2_000
# The record keeps as many changes for each schedule.
MAX_CHANGES = 100


@dataclass(frozen=True, slots=True)
class ChangedField:
    """A field with two values. Both are empty if the user may not see them."""

    label: str
    before: str = ""
    after: str = ""
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change as the page shows it."""

    time: SafeString | str
    exact_time: str
    by: str
    fields: tuple[ChangedField, ...] = ()
    is_deletion: bool = False
    is_addition: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """A value of a schedule."""

    label: str
    value: str
    is_code: bool = False


def field_msgids(names: Iterable[str]) -> list[str]:
    """Return the names of fields in English, which the audit log stores."""
    with translation.override(None):
        return [str(Schedule._meta.get_field(name).verbose_name) for name in names]  # type: ignore[union-attr]


def names_of_models(found: Iterable[type[Model]]) -> list[str]:
    """Return the names of models in English."""
    with translation.override(None):
        return [str(each._meta.verbose_name_plural) for each in found]


def facts_of(schedule: Schedule, names: Iterable[str]) -> list[Fact]:
    """Return the values that a schedule has in these fields, in the order of the form."""
    shown = frozenset(names)
    values = [(name, getattr(schedule, name)) for name in DEFINITION if name in shown]
    zone = _zone(schedule.time_zone)
    return [
        Fact(_label(name), _shown(name, value, zone), is_code=name == "payload")
        for name, value in values
        if value not in (None, "")
    ]


def _label(name: str) -> str:
    return str(capfirst(Schedule._meta.get_field(name).verbose_name))  # type: ignore[union-attr]


def _zone(name: str) -> tzinfo:
    try:
        return zone_of(name) or UTC
    except ValueError:
        return UTC


def _shown(name: str, value: Any, zone: tzinfo) -> str:
    """Return a value of a definition; a dash for null."""
    if value is None or value == "":
        return formatting.EMPTY_VALUE
    if isinstance(value, bool):
        return _("Yes") if value else _("No")
    if isinstance(value, datetime):
        if formatting.aware(value) >= formatting.LATEST:
            return _("until someone resumes it")
        return formatting.in_both_zones(formatting.aware(value), zone)
    if isinstance(value, timedelta):
        return interval_text(value)
    if name in CHOICES and value in CHOICES[name].values:
        return str(CHOICES[name](value).label)
    if name == "payload":
        text = to_json(redact(value), indent=2)
        return text if len(text) <= MAX_PAYLOAD else f"{text[:MAX_PAYLOAD]}…"
    return str(value)


def _differences(first: RecordedChange, last: RecordedChange, *, is_payload_changed: bool) -> list[ChangedField]:
    """Return the fields that differ between two definitions as the database has stored them."""
    before, after = first.before, last.after or {}
    found = []
    for name in DEFINITION:
        if name != "payload" and before.get(name) != after.get(name):
            old, new = (
                _shown(name, _from_json(name, each), _zone(str(each.get("time_zone")))) for each in (before, after)
            )
            found.append(ChangedField(_label(name), old, new))
    if is_payload_changed:
        old, new = (
            "" if text is None else _shown("payload", decode_leniently(text), UTC)
            for text in (first.payload_before, last.payload_after)
        )
        found.append(ChangedField(_label("payload"), old, new, is_code=True))
    return found


def _from_json(name: str, definition: Mapping[str, Any]) -> Any:
    """Return a value of a definition that the database has stored as JSON."""
    value = definition.get(name)
    if isinstance(value, str) and name in TIMES:
        return parse_datetime(value) or value
    return (parse_duration(value) or value) if isinstance(value, str) and name in INTERVALS else value


class ScheduleHistoryAdmin(ScheduleActionsAdmin):
    """The record of changes. That of a deleted schedule is for superusers: nothing restricts it any more."""

    object_history_template: ClassVar[Any] = f"{TEMPLATES}/schedule_history.html"

    @explain_database_errors
    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        self.require(self.sees_schedules(request))
        key = int(object_id) if object_id.isascii() and object_id.isdigit() and len(object_id) <= 18 else 0
        alias = databases.selected_alias(request)
        with databases.reading(alias):
            schedule: Schedule | None = self.get_queryset(request).filter(pk=key).first()
        self.require(schedule is None or self.has_view_or_change_permission(request, schedule))
        may_look = schedule is not None or bool(getattr(request.user, "is_superuser", False))
        changes = self._changes(request, key, MAX_CHANGES) if may_look else []
        if schedule is None and (not changes or changes[0].after is not None):
            messages.warning(request, _("This schedule does not exist. It may have been deleted."))
            return HttpResponseRedirect(self.url_or_index(request, "schedule"))
        name = schedule.name if schedule is not None else str(changes[0].before.get("name", ""))
        is_cut = len(changes) < (schedule.revision or 0) if schedule is not None else len(changes) == MAX_CHANGES
        shown = [
            _change(
                each.changed_at,
                each.changed_by,
                fields=()
                if each.after is None
                else tuple(_differences(each, each, is_payload_changed=each.is_payload_changed)),
                is_deletion=each.after is None,
            )
            for each in changes
        ]
        if schedule is not None and not is_cut:
            # The record begins with the first change.
            shown.append(_change(schedule.created_at, "" if changes else schedule.changed_by, is_addition=True))
        context = {
            "title": _("Changes of %(name)s") % {"name": name},
            "name": name,
            "changes": shown,
            "is_cut": is_cut,
            "sees_payload": self.has_view_payload_permission(request),
            "list_url": self.url(request, "schedule"),
            "schedule_url": "" if schedule is None else self.url(request, "schedule", "change", schedule.pk),
        }
        return self.render(request, self.object_history_template, context)

    def changes_since(self, request: HttpRequest, schedule: Schedule, revision: int | None) -> list[ChangedField]:
        """Return what is different from an earlier revision of a schedule, field by field."""
        number = max((schedule.revision or 0) - (revision or 0), 1)
        changes = self._changes(request, schedule.pk, min(number, MAX_CHANGES))
        if not changes or changes[0].after is None:
            return []
        is_payload_changed = any(change.is_payload_changed for change in changes)
        return _differences(changes[-1], changes[0], is_payload_changed=is_payload_changed)

    def _changes(self, request: HttpRequest, schedule_id: int, number: int) -> list[RecordedChange]:
        """Return the latest changes; they have payloads only for a user who may see payloads."""
        sees_payloads = self.has_view_payload_permission(request)
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            return changes_of(cursor, schedule_id, number=number, schema=schema, with_payloads=sees_payloads)


def _change(at: datetime | None, by: str, **details: Any) -> ShownChange:
    return ShownChange(formatting.relative_time(at), formatting.exact_time(at), by, **details)
