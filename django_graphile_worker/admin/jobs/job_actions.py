"""The actions on jobs: labels, permissions, forms, the states to which each applies, and what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_graphile_worker import conf, signals
from django_graphile_worker.admin import audit
from django_graphile_worker.admin.jobs.forms import CancelForm, FailForm, RescheduleForm
from django_graphile_worker.registry import tasks
from django_graphile_worker.sql.control import Cancellation
from django_graphile_worker.sql.inspection.job_list import State
from django_graphile_worker.sql.job_actions import changes
from django_graphile_worker.sql.job_actions.bulk_steps import Call
from django_graphile_worker.sql.job_actions.changes import Change
from django_graphile_worker.sql.results import keeping
from django_graphile_worker.text import storable_text

FormData = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """An action: its texts, its permission, its form if it has one, and the call that it makes."""

    name: str
    label: Any
    # The heading of the confirmation, for a number of jobs and for one job.
    question: Any
    question_of_one: Any
    # What it does, for a number of jobs.
    explanation: Any
    # What is reported afterwards.
    done: Any
    # The name of the JobAdmin method that checks the permission, without has_ and _permission.
    permission: str
    # Returns the call for the data of the form.
    make_call: Callable[[FormData], Call]
    form: type[forms.Form] | None = None
    is_destructive: bool = False
    log_flag: int = audit.CHANGE

    @property
    def title(self) -> str:
        """The label without the ellipsis of a button that opens another page."""
        return str(self.label).rstrip("…")

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the jobs that it changes."""
        return changes.STATES[self.name]

    @property
    def changes_running(self) -> bool:
        """Whether it changes jobs that a worker is running; other actions skip them."""
        return State.RUNNING in self.states

    @property
    def needs_confirmation(self) -> bool:
        return self.is_destructive or self.form is not None

    def is_allowed(self, admin: Any, request: HttpRequest) -> bool:
        return bool(getattr(admin, f"has_{self.permission}_permission")(request))


def _changing(change: Change) -> Call:
    settings = conf.current()
    return Call(change=change, notify=settings.notify, keeping=keeping(settings, tasks))


def _run_now(data: FormData) -> Call:
    return _changing(Change(action=changes.RUN_NOW))


def _run_next(data: FormData) -> Call:
    # The priority is computed when the action begins.
    return _changing(Change(action=changes.RUN_NEXT))


def _retry(data: FormData) -> Call:
    return _changing(Change(action=changes.RETRY))


def _reschedule(data: FormData) -> Call:
    change = Change(
        action=changes.RESCHEDULE,
        run_at=data.get("run_at"),
        priority=data.get("priority"),
        attempts=data.get("attempts"),
        max_attempts=data.get("max_attempts"),
    )
    return _changing(change)


def _fail(data: FormData) -> Call:
    reason = storable_text(data.get("reason") or "") or changes.DEFAULT_REASON
    return _changing(Change(action=changes.FAIL, reason=reason))


def _delete(data: FormData) -> Call:
    return Call(keeping=keeping(conf.current(), tasks))


def _cancel(data: FormData) -> Call:
    cancellation = Cancellation(
        reason=storable_text(data.get("reason") or ""),
        by=storable_text(data.get("by") or ""),
        notify=conf.current().notify,
        keeping=keeping(conf.current(), tasks),
        is_read=signals.job_cancelled.is_heard(),
    )
    return Call(cancellation=cancellation)


RUN_NOW = Action(
    changes.RUN_NOW,
    _("Run now"),
    ngettext_lazy("Run %(number)s job now?", "Run %(number)s jobs now?", "count"),
    _("Run %(job)s now?"),
    ngettext_lazy(
        "The job becomes due now. Its attempts and its priority stay.",
        "Jobs that are not due yet become due now. Their attempts, their priority and their order stay.",
        "count",
    ),
    ngettext_lazy("%(number)s job will run now.", "%(number)s jobs will run now.", "count"),
    "reschedule",
    _run_now,
)
RUN_NEXT = Action(
    changes.RUN_NEXT,
    _("Run next"),
    ngettext_lazy("Run %(number)s job next?", "Run %(number)s jobs next?", "count"),
    _("Run %(job)s next?"),
    ngettext_lazy(
        "The job gets a priority that puts it before all other jobs.",
        "Due jobs get a priority that puts them before all other jobs. Among each other they keep their order.",
        "count",
    ),
    ngettext_lazy("%(number)s job will run next.", "%(number)s jobs will run next.", "count"),
    "reschedule",
    _run_next,
)
RETRY = Action(
    changes.RETRY,
    _("Retry"),
    ngettext_lazy("Retry %(number)s job?", "Retry %(number)s jobs?", "count"),
    _("Retry %(job)s?"),
    ngettext_lazy(
        "The job becomes due now, and gets all its attempts again. It keeps its last error.",
        "Jobs that have failed become due now, and get all their attempts again. They keep their last error.",
        "count",
    ),
    ngettext_lazy("%(number)s job will be retried now.", "%(number)s jobs will be retried now.", "count"),
    "reschedule",
    _retry,
)
RESCHEDULE = Action(
    changes.RESCHEDULE,
    _("Reschedule…"),
    ngettext_lazy("Reschedule %(number)s job?", "Reschedule %(number)s jobs?", "count"),
    _("Reschedule %(job)s?"),
    ngettext_lazy(
        "Empty fields stay unchanged. A failed job that gets a time also gets all its attempts again.",
        "Empty fields stay unchanged. Failed jobs that get a time also get all their attempts again.",
        "count",
    ),
    ngettext_lazy("%(number)s job was rescheduled.", "%(number)s jobs were rescheduled.", "count"),
    "reschedule",
    _reschedule,
    form=RescheduleForm,
)
FAIL = Action(
    changes.FAIL,
    _("Fail…"),
    ngettext_lazy("Fail %(number)s job?", "Fail %(number)s jobs?", "count"),
    _("Fail %(job)s?"),
    ngettext_lazy(
        "The job is not run, and stays in the list of failed jobs. The error that it has is kept.",
        "The jobs are not run, and stay in the list of failed jobs. The errors that they have are kept.",
        "count",
    ),
    ngettext_lazy("%(number)s job was failed.", "%(number)s jobs were failed.", "count"),
    "complete",
    _fail,
    form=FailForm,
    is_destructive=True,
)
CANCEL = Action(
    changes.CANCEL,
    _("Cancel…"),
    ngettext_lazy("Cancel %(number)s job?", "Cancel %(number)s jobs?", "count"),
    _("Cancel %(job)s?"),
    ngettext_lazy(
        "A job that waits is removed. A job that runs is stopped: its worker is told now. It is not retried.",
        "Jobs that wait are removed. Jobs that run are stopped: their workers are told now. None of them is retried.",
        "count",
    ),
    ngettext_lazy("%(number)s job was cancelled.", "%(number)s jobs were cancelled.", "count"),
    "cancel",
    _cancel,
    form=CancelForm,
    is_destructive=True,
    log_flag=audit.DELETION,
)
DELETE = Action(
    changes.DELETE,
    _("Delete…"),
    ngettext_lazy("Delete %(number)s job?", "Delete %(number)s jobs?", "count"),
    _("Delete %(job)s?"),
    ngettext_lazy(
        "The job is deleted, and does not run. This cannot be undone.",
        "The jobs are deleted, and do not run. This cannot be undone.",
        "count",
    ),
    ngettext_lazy("%(number)s job was deleted.", "%(number)s jobs were deleted.", "count"),
    "delete",
    _delete,
    is_destructive=True,
    log_flag=audit.DELETION,
)

ACTIONS = {each.name: each for each in (RUN_NOW, RUN_NEXT, RETRY, RESCHEDULE, FAIL, CANCEL, DELETE)}

# What each list offers, and the page of a job in its state: nothing that cannot work.
OFFERED = {
    State.READY: (RUN_NEXT, RESCHEDULE, FAIL, DELETE),
    State.LIMITED: (RUN_NEXT, RESCHEDULE, FAIL, DELETE),
    State.SCHEDULED: (RUN_NOW, RESCHEDULE, FAIL, DELETE),
    State.RETRYING: (RUN_NOW, RESCHEDULE, FAIL, DELETE),
    State.FAILED: (RETRY, RESCHEDULE, DELETE),
    State.RUNNING: (CANCEL,),
    State.WAITING: (RUN_NOW, RESCHEDULE, FAIL, DELETE),
    State.FAILING: (RETRY, RESCHEDULE, FAIL, DELETE),
    State.ANY: (RUN_NOW, RUN_NEXT, RETRY, RESCHEDULE, FAIL, CANCEL, DELETE),
}


def offered_actions(admin: Any, request: HttpRequest, state: State) -> list[Action]:
    """Return the actions that work in a state and that the user may perform, the usual one first."""
    allowed = [each for each in OFFERED[state] if each.is_allowed(admin, request)]
    if DELETE not in allowed and CANCEL not in allowed and state in CANCEL.states and CANCEL.is_allowed(admin, request):
        # To delete a waiting job needs another permission than to cancel it, which has the same effect.
        allowed.append(CANCEL)
    return allowed
