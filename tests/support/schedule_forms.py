"""What tests of the form of schedules send."""

from __future__ import annotations

from typing import Any

from django.test import Client

from django_graphile_worker.models import Schedule

MODEL_PERMISSIONS = tuple(f"{action}_schedule" for action in ("view", "add", "change", "delete", "run", "pause"))
SCHEDULES = "/admin/graphile_worker/schedule/"
ADD = f"{SCHEDULES}add/"
CHECK = f"{SCHEDULES}check/"

VALUES = {
    "name": "nightly",
    "task": "reports:plain",
    "payload_of": "reports:plain",
    "payload_as": "json",
    "payload-json": "{}",
    "is_enabled": "on",
    "kind": "cron",
    "cron": "0 9 * * 1-5",
    "time_zone": "Europe/Berlin",
    "missed": "skip",
    "overlap": "allow",
}


class OwnClient(Client):
    """A client that sends the form of a schedule."""

    def add(self, **values: Any) -> Any:
        return self.post(ADD, form_values(**values))

    def change(self, schedule: Schedule, **values: Any) -> Any:
        given = {"revision": schedule.revision, "schedule": schedule.pk, **values}
        return self.post(change_url(schedule), form_values(**given))

    def check_form(self, **values: Any) -> Any:
        return self.post(CHECK, form_values(**values))


def make_schedule(**values: Any) -> Schedule:
    """Return a schedule that a program has saved."""
    given = {"name": "nightly", "task": "reports:plain", "cron": "0 9 * * 1-5", "time_zone": "Europe/Berlin"}
    schedule = Schedule(**{**given, **values})
    schedule.save()
    return schedule


def form_values(**values: Any) -> dict[str, Any]:
    """Return what a browser sends for a form with these values."""
    return {**VALUES, **values}


def change_url(schedule: Schedule) -> str:
    return f"{SCHEDULES}{schedule.pk}/change/"


def history_url(schedule: Schedule) -> str:
    return f"{SCHEDULES}{schedule.pk}/history/"


def errors(response: Any) -> dict[str, list[str]]:
    """Return the errors of both forms of a page by the names of their fields."""
    found: dict[str, list[str]] = response.context["form"].all_errors()
    return found
