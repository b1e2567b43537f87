"""The actions on jobs: labels, permissions, forms, and the SQL functions that they call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_graphile_worker import conf, signals
from django_graphile_worker.admin import audit
from django_graphile_worker.admin.jobs.forms import CancelForm, FailForm, RescheduleForm
from django_graphile_worker.printable_text import storable_text
from django_graphile_worker.registry import tasks
from django_graphile_worker.sql import bulk_actions
from django_graphile_worker.sql.cancellations import Cancellation
from django_graphile_worker.sql.jobs import Changes
from django_graphile_worker.sql.result_keeping import keeping

FormData = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """An action: its texts, its permission, its form if it has one, and the call that it makes."""

    name: str
    label: Any
    explanation: Any
    # The name of the JobAdmin method that checks the permission, without has_ and _permission.
    permission: str
    # Returns the call of an SQL function for the data of the form.
    make_call: Callable[[FormData], bulk_actions.Call | bulk_actions.CancelCall]
    success_message: Any
    form: type[forms.Form] | None = None
    is_destructive: bool = False
    # Whether it changes jobs that a worker is running; other actions skip them.
    changes_running: bool = False
    log_flag: int = audit.CHANGE

    @property
    def title(self) -> str:
        """The label without the ellipsis of a button that opens another page."""
        return str(self.label).rstrip("…")

    @property
    def needs_confirmation(self) -> bool:
        return self.is_destructive or self.form is not None

    def is_allowed(self, admin: Any, request: HttpRequest) -> bool:
        return bool(getattr(admin, f"has_{self.permission}_permission")(request))


def _run(data: FormData) -> bulk_actions.Call:
    return _reschedule({"run_at": timedelta(0), "attempts": 0})


def _reschedule(data: FormData) -> bulk_actions.Call:
    changes = Changes(
        run_at=data.get("run_at"),
        priority=data.get("priority"),
        attempts=data.get("attempts"),
        max_attempts=data.get("max_attempts"),
    )
    return bulk_actions.reschedule(changes, notify=conf.current().notify)


def _complete(data: FormData) -> bulk_actions.Call:
    return bulk_actions.complete(keeping(conf.current(), tasks))


def _cancel(data: FormData) -> bulk_actions.CancelCall:
    return bulk_actions.cancel(
        Cancellation(
            reason=storable_text(data.get("reason") or ""),
            by=storable_text(data.get("by") or ""),
            notify=conf.current().notify,
            keeping=keeping(conf.current(), tasks),
            is_read=signals.job_cancelled.is_heard(),
        )
    )


def _fail(data: FormData) -> bulk_actions.Call:
    return bulk_actions.fail(storable_text(data.get("reason") or "") or None, keeping(conf.current(), tasks))


ACTIONS = {
    action.name: action
    for action in (
        Action(
            "run",
            _("Run now"),
            _("The jobs become due now, and get all their attempts again."),
            "reschedule",
            _run,
            _("Run now: %(jobs)s."),
        ),
        Action(
            "reschedule",
            _("Reschedule…"),
            _("Empty fields leave the jobs unchanged."),
            "reschedule",
            _reschedule,
            _("Rescheduled: %(jobs)s."),
            form=RescheduleForm,
        ),
        Action(
            "complete",
            _("Complete…"),
            _("The jobs are deleted as if they had succeeded, and do not run."),
            "complete",
            _complete,
            _("Completed: %(jobs)s."),
            is_destructive=True,
            log_flag=audit.DELETION,
        ),
        Action(
            "cancel",
            _("Cancel…"),
            _(
                "Jobs that wait are removed. Jobs that run are stopped: their workers are told now. None of them is "
                "retried."
            ),
            "cancel",
            _cancel,
            _("Cancelled: %(jobs)s."),
            form=CancelForm,
            is_destructive=True,
            changes_running=True,
            log_flag=audit.DELETION,
        ),
        Action(
            "fail",
            _("Fail permanently…"),
            _("The jobs stay in the list of permanently failed jobs, and are not retried."),
            "complete",
            _fail,
            _("Permanently failed: %(jobs)s."),
            form=FailForm,
            is_destructive=True,
        ),
        Action(
            "remove",
            _("Remove…"),
            _("The jobs are deleted, and do not run. This cannot be undone."),
            "complete",
            _complete,
            _("Removed: %(jobs)s."),
            is_destructive=True,
            log_flag=audit.DELETION,
        ),
    )
}
