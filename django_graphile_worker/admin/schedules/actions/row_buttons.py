"""The buttons of a row of the list: only what the user may do, and what changes something."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker.admin.schedules.actions.schedule_actions import ACTIONS
from django_graphile_worker.admin.schedules.code_items import CodeItem
from django_graphile_worker.admin.schedules.permissions import SchedulePermissionsAdmin
from django_graphile_worker.models import Schedule

# The others are in the menu of the row.
DIRECT = ("run_now", "resume", "pause")
# What the value of a button begins with, after the action.
SCHEDULE, ITEM = "schedule", "item"


@dataclass(frozen=True, slots=True)
class Button:
    """A button that sends ``value``; ``title`` names the row, for readers that hear the buttons of all rows."""

    value: str
    label: str
    title: str
    css_class: str = ""


def buttons_of_schedule(
    page: SchedulePermissionsAdmin, request: HttpRequest, schedule: Schedule, now: datetime
) -> tuple[Button, ...]:
    """Return the actions that the user may take on a schedule, in the order of the actions."""
    names = [
        action.name
        for action in ACTIONS.values()
        if action.applies(schedule, now) and getattr(page, action.permission)(request, schedule)
    ]
    return tuple(_button(name, SCHEDULE, str(schedule.pk), schedule.name) for name in _without_both(names))


def buttons_of_item(page: SchedulePermissionsAdmin, request: HttpRequest, item: CodeItem) -> tuple[Button, ...]:
    """Return the actions that the user may take on an item. To pause an item, it needs its row in the database."""
    names = []
    if page.has_item_permission(request, "run", item.item.task):
        names.append("run_now")
    if item.known is not None and page.has_item_permission(request, "pause", item.item.task):
        names.append("resume" if item.is_paused else "pause")
    return tuple(_button(name, ITEM, item.name, item.name) for name in names)


def is_direct(button: Button) -> bool:
    """Return whether a button is in the row itself, and not in its menu."""
    return parse_button(button.value)[0] in DIRECT


def parse_button(value: str) -> tuple[str, str, str]:
    """Return the action, the kind and the id or name of the value of a button."""
    action, _separator, rest = value.partition(" ")
    kind, _separator, name = rest.partition(" ")
    return action, kind, name


def _without_both(names: list[str]) -> list[str]:
    """Leave out the pause of a schedule that can be resumed: another end is set by pausing it from the page."""
    return [name for name in names if name != "pause" or "resume" not in names]


def _button(action: str, kind: str, name: str, shown_name: str) -> Button:
    found = ACTIONS[action]
    title = _("%(action)s: %(name)s") % {"action": found.label, "name": shown_name}
    label = _("Pause…") if action == "pause" and kind == SCHEDULE else str(found.label)
    return Button(f"{action} {kind} {name}", label, title, "gw-danger" if found.is_destructive else "")
