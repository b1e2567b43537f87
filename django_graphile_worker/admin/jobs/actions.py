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
from django_graphile_worker.admin.databases import Session
from django_graphile_worker.admin.jobs.forms import FailForm, RescheduleForm
from django_graphile_worker.jobs import storable_text
from django_graphile_worker.sql import bulk
from django_graphile_worker.sql.inspection.criteria import Criteria
from django_graphile_worker.sql.jobs import Changes

Perform = Callable[[Session, Criteria, dict[str, Any]], bulk.Changed]


@dataclass(frozen=True, slots=True)
class Action:
    """An action: its names, who may do it, what it asks for, and how it is done."""

    name: str
    label: Any
    explanation: Any
    # The permission, as the name of JobAdmin's method without has_ and _permission.
    permission: str
    perform: Perform
    done: Any
    form: type[forms.Form] | None = None
    is_destructive: bool = False
    flag: int = audit.CHANGE

    def is_allowed(self, admin: Any, request: HttpRequest) -> bool:
        return bool(getattr(admin, f"has_{self.permission}_permission")(request))

    @property
    def needs_asking(self) -> bool:
        return self.is_destructive or self.form is not None


def _run(session: Session, criteria: Criteria, given: dict[str, Any]) -> bulk.Changed:
    return _reschedule(session, criteria, {"run_at": timedelta(0), "attempts": 0})


def _reschedule(session: Session, criteria: Criteria, given: dict[str, Any]) -> bulk.Changed:
    changes = Changes(
        run_at=given.get("run_at"),
        priority=given.get("priority"),
        attempts=given.get("attempts"),
        max_attempts=given.get("max_attempts"),
    )
    cursor, schema = session
    return bulk.reschedule_all(cursor, criteria, changes, schema=schema, notify=conf.current().notify)


def _complete(session: Session, criteria: Criteria, given: dict[str, Any]) -> bulk.Changed:
    return bulk.complete_all(session.cursor, criteria, schema=session.schema)


def _fail(session: Session, criteria: Criteria, given: dict[str, Any]) -> bulk.Changed:
    reason = storable_text(given.get("reason") or "") or None
    return bulk.fail_all(session.cursor, criteria, reason, schema=session.schema)


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
