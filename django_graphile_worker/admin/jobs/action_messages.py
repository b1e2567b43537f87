"""Messages to the user after an action."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.jobs.actions import Action
from django_graphile_worker.admin.jobs.bulk_progress import BulkProgress


def success_message(action: Action, progress: BulkProgress) -> str:
    return str(action.success_message) % {"jobs": formatting.job_count(progress.changed)}


def skipped_message(progress: BulkProgress) -> str:
    """Return how many jobs were skipped because a worker is running them; "" when none was."""
    if not progress.skipped:
        return ""
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
    if progress.skipped:
        messages.warning(request, skipped_message(progress))
    missing = 0 if selected is None else selected - progress.found
    if missing > 0:
        message = ngettext("%(number)s job no longer exists.", "%(number)s jobs no longer exist.", missing)
        messages.warning(request, message % {"number": f"{missing:,}"})
    if not progress.found and not missing:
        messages.warning(request, _("No jobs match."))
