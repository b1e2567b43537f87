"""What can be done with jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_graphile_worker import conf
from django_graphile_worker.admin import audit
from django_graphile_worker.admin.jobs.forms import FailForm, RescheduleForm
from django_graphile_worker.escaping import storable_text
from django_graphile_worker.sql import bulk_actions
from django_graphile_worker.sql.jobs import Changes

Given = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """An action: its names, who may do it, what it asks for, and how it is done."""

    name: str
    label: Any
    explanation: Any
    # The permission, as the name of JobAdmin's method without has_ and _permission.
    permission: str
    # What the schema is asked to do, from what the form was given.
    call: Callable[[Given], bulk_actions.Call]
    done: Any
    form: type[forms.Form] | None = None
    is_destructive: bool = False
    flag: int = audit.CHANGE

    def is_allowed(self, admin: Any, request: HttpRequest) -> bool:
        return bool(getattr(admin, f"has_{self.permission}_permission")(request))

    @property
    def needs_asking(self) -> bool:
        return self.is_destructive or self.form is not None


def _run(given: Given) -> bulk_actions.Call:
    return _reschedule({"run_at": timedelta(0), "attempts": 0})


def _reschedule(given: Given) -> bulk_actions.Call:
    changes = Changes(
        run_at=given.get("run_at"),
        priority=given.get("priority"),
        attempts=given.get("attempts"),
        max_attempts=given.get("max_attempts"),
    )
    return bulk_actions.reschedule(changes, notify=conf.current().notify)


def _complete(given: Given) -> bulk_actions.Call:
    return bulk_actions.COMPLETE


def _fail(given: Given) -> bulk_actions.Call:
    return bulk_actions.fail(storable_text(given.get("reason") or "") or None)


ACTIONS = {
    action.name: action
    for action in (
        Action(
            "run",
            _("Run now"),
            _("They are due at once and start afresh, with all their attempts."),
            "reschedule",
            _run,
            _("Run now: %(jobs)s."),
        ),
        Action(
            "reschedule",
            _("Reschedule…"),
            _("What is left empty stays as it is."),
            "reschedule",
            _reschedule,
            _("Rescheduled: %(jobs)s."),
            form=RescheduleForm,
        ),
        Action(
            "complete",
            _("Complete…"),
            _("They are deleted as if they had succeeded, and do not run."),
            "complete",
            _complete,
            _("Completed: %(jobs)s."),
            is_destructive=True,
            flag=audit.DELETION,
        ),
        Action(
            "fail",
            _("Fail permanently…"),
            _("They stay where they can be seen, and are not tried again."),
            "complete",
            _fail,
            _("Permanently failed: %(jobs)s."),
            form=FailForm,
            is_destructive=True,
        ),
        Action(
            "remove",
            _("Remove…"),
            _("They are deleted, and do not run. This cannot be undone."),
            "complete",
            _complete,
            _("Removed: %(jobs)s."),
            is_destructive=True,
            flag=audit.DELETION,
        ),
    )
}
