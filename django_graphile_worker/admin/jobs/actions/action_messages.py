"""Messages to the user after an action."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.jobs.actions.bulk_progress import BulkProgress
from django_graphile_worker.admin.jobs.actions.job_actions import RETRY, RUN_NEXT, RUN_NOW, Action
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.sql.inspection.job_search.criteria import State

# How many jobs a message links to.
MOST_LINKED = 3


def done_message(action: Action, progress: BulkProgress) -> str:
    if progress.paused and progress.paused >= progress.changed:
        message = ngettext(
            "%(number)s job is due, and starts when its pause ends: %(pauses)s.",
            "%(number)s jobs are due, and start when their pauses end: %(pauses)s.",
            progress.paused,
        )
        return _with_pauses(message, progress)
    return str(action.done % {"count": progress.changed, "number": formatting.number(progress.changed)})


def notes(action: Action, progress: BulkProgress) -> list[str]:
    """Return what is to be said about the jobs that the action did not change, or has not ended yet."""
    return [note for note in (_waiting_note(action, progress), stopping_message(progress)) if note] + warnings(
        action, progress
    )


def _waiting_note(action: Action, progress: BulkProgress) -> str:
    """Return that a pause or a queue may keep jobs from running at once; "" if neither does."""
    if 0 < progress.paused < progress.changed:
        message = ngettext(
            "%(number)s of them is paused, and starts when its pause ends: %(pauses)s.",
            "%(number)s of them are paused, and start when their pauses end: %(pauses)s.",
            progress.paused,
        )
        return _with_pauses(message, progress)
    if progress.paused:
        return ""
    if action not in (RUN_NOW, RUN_NEXT, RETRY) or not progress.queued:
        return ""
    if action is RUN_NEXT and progress.changed == 1:
        return _("It is the first job of its queue, and starts when the queue is free.")
    message = ngettext(
        "%(number)s of them is in a queue, and starts when the queue is free.",
        "%(number)s of them are in queues, and start when their queues are free.",
        progress.queued,
    )
    return message % {"number": formatting.number(progress.queued)}


def _with_pauses(message: str, progress: BulkProgress) -> str:
    return message % {"number": formatting.number(progress.paused), "pauses": ", ".join(progress.pauses)}


def warnings(action: Action, progress: BulkProgress) -> list[str]:
    """Return which jobs were not changed, and why."""
    skipped = [_skipped_message(action, State(state), number) for state, number in progress.skipped.items() if number]
    return [message for message in (_unstoppable_message(progress), *skipped, _ended_message(progress)) if message]


def stopping_message(progress: BulkProgress) -> str:
    """Return how many jobs are being stopped; "" when none is."""
    if not progress.stopping:
        return ""
    message = ngettext(
        "%(number)s of them is running: its worker is told to stop it.",
        "%(number)s of them are running: their workers are told to stop them.",
        progress.stopping,
    )
    return message % {"number": formatting.number(progress.stopping)}


def stopped_message(progress: BulkProgress) -> str:
    """Return where the user stopped the action; what it changed until then stays, and may be undone."""
    numbers = {"visited": formatting.number(progress.visited), "found": formatting.number(progress.found)}
    if progress.has_timed_out:
        return _("Stopped. A step that had begun is still running, and is not in these numbers.")
    if progress.is_collected:
        message = ngettext(
            "Stopped after %(visited)s of %(found)s job.",
            "Stopped after %(visited)s of %(found)s jobs.",
            progress.found,
        )
    else:
        message = ngettext("Stopped after %(visited)s job.", "Stopped after %(visited)s jobs.", progress.visited)
    return message % numbers


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
    return message % {"number": formatting.number(progress.unstoppable), "ids": f"{ids}{more}"}


def _skipped_message(action: Action, state: State, number: int) -> str:
    if state is State.RUNNING:
        message = ngettext(
            "%(number)s job was skipped, because a worker is running it.",
            "%(number)s jobs were skipped, because workers are running them.",
            number,
        )
    elif action is RUN_NEXT and state in action.states:
        message = ngettext(
            "%(number)s job was skipped, because it is before all other jobs already.",
            "%(number)s jobs were skipped, because they are before all other jobs already.",
            number,
        )
    elif state in action.states:
        message = ngettext(
            "%(number)s job was skipped, because it was changed meanwhile.",
            "%(number)s jobs were skipped, because they were changed meanwhile.",
            number,
        )
    else:
        message = ngettext(
            "%(number)s job was skipped: its state is “%(state)s”.",
            "%(number)s jobs were skipped: their state is “%(state)s”.",
            number,
        )
    return message % {"number": formatting.number(number), "state": state_name(state)}


def _ended_message(progress: BulkProgress) -> str:
    if not progress.ended:
        return ""
    message = ngettext(
        "%(number)s job was skipped, because it has ended meanwhile.",
        "%(number)s jobs were skipped, because they have ended meanwhile.",
        progress.ended,
    )
    return message % {"number": formatting.number(progress.ended)}


def add_messages(
    request: HttpRequest, admin: Any, action: Action, progress: BulkProgress, *, selected: int | None
) -> None:
    """Add the messages about an action that is over; `selected` is the number of selected jobs, None for all."""
    if progress.changed:
        messages.success(request, _linked(request, admin, action, progress))
    if stopping := stopping_message(progress):
        messages.info(request, stopping)
    for warning in warnings(action, progress):
        messages.warning(request, warning)
    missing = 0 if selected is None else selected - progress.found
    if missing > 0:
        message = ngettext("%(number)s job no longer exists.", "%(number)s jobs no longer exist.", missing)
        messages.warning(request, message % {"number": formatting.number(missing)})
    if not progress.found and not progress.skipped and missing <= 0:
        messages.warning(request, _("No jobs match."))


def _linked(request: HttpRequest, admin: Any, action: Action, progress: BulkProgress) -> SafeString:
    """Return what was done, with links to the jobs if they are few, and to the undo if there is one."""
    parts = [format_html("{}", done_message(action, progress))]
    if note := _waiting_note(action, progress):
        parts.append(format_html("{}", note))
    if progress.changed <= MOST_LINKED and action.has_undo:
        links = [(admin.url(request, "job", "change", each), each) for each in progress.ids]
        parts.append(format_html_join(" ", '<a href="{}">#{}</a>', links))
    if progress.is_undoable and action.has_undo:
        undo_url = admin.url(request, "job", "undo", progress.action_id)
        parts.append(format_html('<a href="{}">{}</a>', undo_url, _("Undo…")))
    return format_html_join(" ", "{}", ((part,) for part in parts))
