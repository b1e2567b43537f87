"""Alarms of the overview: serious events of the last day that are not dismissed."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.events.event_text import EventText
from django_graphile_worker.admin.overview.health import HealthProblem
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.event_texts import Name, Sentence, suspects
from django_graphile_worker.sql.events import ALARM_HOURS, ERROR, Alarm


def event_problems(page: PageAdmin, request: HttpRequest, alarms: Sequence[Alarm]) -> list[HealthProblem]:
    """Return the alarms as the overview shows its problems."""
    text = EventText(page, request)
    may_dismiss = page.has_app_permission(request, "dismiss_event")
    return [_problem(text, alarm, may_dismiss=may_dismiss) for alarm in alarms]


def _problem(text: EventText, alarm: Alarm, *, may_dismiss: bool) -> HealthProblem:
    event = alarm.event
    is_repeated_loss = event.kind == "worker_lost" and alarm.number > 1
    cause = text.joined([_losses(alarm), *suspects(event.recovered)]) if is_repeated_loss else text.of(event)
    return HealthProblem(
        level="error" if event.severity >= ERROR else "warning",
        cause=cause,
        remedy=_when(alarm, is_counted=is_repeated_loss),
        dismissed_kind=event.kind if may_dismiss else "",
        dismissed_until=event.last_at.isoformat(),
    )


def _losses(alarm: Alarm) -> Sentence:
    event = alarm.event
    values = {"worker": Name("worker", event.subject, event.worker_id or "")}
    if alarm.in_last_hour > 1:
        text = _("Worker lost %(number)s times in the last hour: last %(worker)s.")
        return Sentence(text, {**values, "number": alarm.in_last_hour})
    text = _("Worker lost %(number)s times in the last %(hours)s hours: last %(worker)s.")
    return Sentence(text, {**values, "number": alarm.number, "hours": ALARM_HOURS})


def _when(alarm: Alarm, *, is_counted: bool) -> SafeString | str:
    last = formatting.relative_time(alarm.event.last_at)
    if is_counted or alarm.number == 1:
        return last
    text = _("%(number)s times in the last %(hours)s hours") % {"number": alarm.number, "hours": ALARM_HOURS}
    return format_html("{} ({})", last, text)
