"""Messages to the user after an action."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.jobs.actions.bulk_progress import BulkProgress
from django_graphile_worker.admin.jobs.actions.job_actions import Action


def success_message(action: Action, progress: BulkProgress) -> str:
    return str(action.success_message) % {"jobs": formatting.job_count(progress.changed)}


def notes(action: Action, progress: BulkProgress) -> list[str]:
    """Return what is to be said about the jobs that the action did not change, or has not ended yet."""
    found = (stopping_message(progress), *_warnings(action, progress))
    return [message for message in found if message]


def _warnings(action: Action, progress: BulkProgress) -> list[str]:
    found = (_unstoppable_message(progress), _skipped_message(action, progress))
    return [message for message in found if message]


def stopping_message(progress: BulkProgress) -> str:
    """Return how many jobs are being stopped; "" when none is."""
    if not progress.stopping:
        return ""
    message = ngettext(
        "%(number)s of them is running: its worker is told to stop it.",
        "%(number)s of them are running: their workers are told to stop them.",
        progress.stopping,
    )
    return message % {"number": f"{progress.stopping:,}"}


def _unstoppable_message(progress: BulkProgress) -> str:
    if not progress.unstoppable:
        return ""
    message = ngettext(
        "%(number)s job is run by a worker of Node.js, which cannot be told to stop: %(ids)s. It is not retried.",
        "%(number)s jobs are run by workers of Node.js, which cannot be told to stop: %(ids)s. They are not retried.",
        progress.unstoppable,
    )
    ids = ", ".join(f"#{each}" for each in progress.unstoppable_ids)
    more = ", …" if progress.unstoppable > len(progress.unstoppable_ids) else ""
    return message % {"number": f"{progress.unstoppable:,}", "ids": f"{ids}{more}"}


def _skipped_message(action: Action, progress: BulkProgress) -> str:
    """Return how many jobs were skipped because a worker is running them, or because they had ended."""
    if not progress.skipped:
        return ""
    if action.changes_running:
        message = ngettext(
            "%(number)s job was skipped, because it has ended.",
            "%(number)s jobs were skipped, because they have ended.",
            progress.skipped,
        )
    else:
        message = ngettext(
            "%(number)s job was skipped, because a worker is running it.",
            "%(number)s jobs were skipped, because workers are running them.",
            progress.skipped,
        )
    return message % {"number": f"{progress.skipped:,}"}


def add_messages(request: HttpRequest, action: Action, progress: BulkProgress, *, selected: int | None) -> None:
    """Add the messages about a finished action; `selected` is the number of selected jobs, None for all that match."""
    if progress.changed:
        messages.success(request, success_message(action, progress))
    if progress.stopping:
        messages.info(request, stopping_message(progress))
    for warning in _warnings(action, progress):
        messages.warning(request, warning)
    missing = 0 if selected is None else selected - progress.found
    if missing > 0:
        message = ngettext("%(number)s job no longer exists.", "%(number)s jobs no longer exist.", missing)
        messages.warning(request, message % {"number": f"{missing:,}"})
    if not progress.found and not missing:
        messages.warning(request, _("No jobs match."))
