"""What an action says: its confirmation, what it has done, and its entry in the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.audit import DELETION, Message
from django_graphile_worker.admin.jobs.bulk_action import BulkProgress
from django_graphile_worker.admin.jobs.job_actions import RETRY, RUN_NEXT, RUN_NOW, Action
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.sql.inspection.job_list import State

# More jobs than this are changed only after the user has typed their number.
MAX_UNTYPED = 1_000


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The number of jobs that an action would change, and of those in each state."""

    action: Action
    counts: Mapping[State, int]

    @property
    def total(self) -> int:
        return sum(number for state, number in self.counts.items() if state in self.action.states)

    def question(self, name_of_one: str) -> str:
        """Return the heading; `name_of_one` is the name of the only job, "" for several."""
        if name_of_one:
            text = self.action.question_of_one if self.total else _("“%(action)s” is not possible for %(job)s")
            return str(text) % {"job": name_of_one, "action": self.action.title}
        return str(self.action.question % {"count": self.total, "number": formatting.number(self.total)})

    def explanation(self, name_of_one: str) -> str:
        """Return what the action does, in the singular if the question is about one job."""
        if name_of_one and not self.total:
            (state,) = self.counts
            return _("Nothing would be changed: its state is “%(state)s”.") % {"state": state_name(state)}
        return str(self.action.explanation % {"count": 1 if name_of_one else self.total})

    def touched(self) -> str:
        """Return how many jobs of which state are changed; "" if they are all in one state."""
        found = [state for state in self.counts if state in self.action.states]
        return self._listed(found) if len(self.counts) > 1 else ""

    def untouched(self) -> str:
        """Return how many jobs of which state stay as they are."""
        return self._listed([state for state in self.counts if state not in self.action.states])

    def _listed(self, states: list[State]) -> str:
        return ", ".join(
            _("%(number)s %(state)s")
            % {"number": formatting.number(self.counts[state]), "state": state_name(state).lower()}
            for state in states
        )


def is_number_typed(request: HttpRequest | None, progress: BulkProgress) -> bool:
    """Return whether the user has typed the number of jobs, if there are so many that it is asked."""
    if progress.selected is not None or progress.found <= MAX_UNTYPED:
        return True
    text = request.POST.get("typed", "") if request is not None else ""
    return "".join(letter for letter in text if letter.isdecimal()) == str(progress.found)


# How many jobs a message links to.
MAX_LINKED = 3


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
    """Return where the user stopped the action; what it changed until then stays."""
    numbers = {"visited": formatting.number(progress.visited), "found": formatting.number(progress.found)}
    if progress.has_timed_out:
        return _("Stopped. A step that had begun is still running, and is not in these numbers.")
    message = ngettext(
        "Stopped after %(visited)s of %(found)s job.", "Stopped after %(visited)s of %(found)s jobs.", progress.found
    )
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


def add_messages(request: HttpRequest, admin: Any, action: Action, progress: BulkProgress) -> None:
    """Add the messages about an action that is over."""
    if progress.changed:
        messages.success(request, _linked(request, admin, action, progress))
    if stopping := stopping_message(progress):
        messages.info(request, stopping)
    for warning in warnings(action, progress):
        messages.warning(request, warning)
    collected = sum(progress.counts.values())
    missing = 0 if progress.selected is None else progress.selected - collected
    if missing > 0:
        message = ngettext("%(number)s job no longer exists.", "%(number)s jobs no longer exist.", missing)
        messages.warning(request, message % {"number": formatting.number(missing)})
    elif not collected:
        messages.warning(request, _("No jobs match."))


def _linked(request: HttpRequest, admin: Any, action: Action, progress: BulkProgress) -> SafeString:
    """Return what was done, with links to the jobs if they are few and still exist."""
    parts = [format_html("{}", done_message(action, progress))]
    if note := _waiting_note(action, progress):
        parts.append(format_html("{}", note))
    if progress.changed <= MAX_LINKED and action.log_flag != DELETION:
        links = [(admin.url(request, "job", "change", each), each) for each in progress.ids]
        parts.append(format_html_join(" ", '<a href="{}">#{}</a>', links))
    return format_html_join(" ", "{}", ((part,) for part in parts))


# By the name of an action.
SENTENCES = {
    "run_now": gettext_noop("Run now."),
    "run_next": gettext_noop("Run next."),
    "retry": gettext_noop("Retried."),
    "reschedule": gettext_noop("Rescheduled: %(changes)s."),
    "cancel": gettext_noop("Cancelled."),
    "fail": gettext_noop("Failed."),
    "delete": gettext_noop("Deleted."),
}
# By the name of a field of a form: a part of a sentence, and the label of the field.
CHANGES = {
    "run_at": (gettext_noop("run at %(value)s"), gettext_noop("Run at")),
    "priority": (gettext_noop("priority %(value)s"), gettext_noop("Priority")),
    "attempts": (gettext_noop("attempts so far %(value)s"), gettext_noop("Attempts so far")),
    "max_attempts": (gettext_noop("maximum attempts %(value)s"), gettext_noop("Maximum attempts")),
}


def log_message(action: str, title: str, data: Mapping[str, Any], search: str = "") -> Message:
    """Return the entry for an action: what it did with the data of its form, and the search that selected the jobs."""
    given = {name: value for name, value in data.items() if value not in (None, "")}
    changed = [name for name in given if name in CHANGES]
    changes = [Message(CHANGES[name][0], {"value": given[name]}) for name in changed]
    message = Message(
        SENTENCES.get(action, "%(title)s."),
        {"changes": changes, "title": title},
        fields=tuple(CHANGES[name][1] for name in changed) or (gettext_noop("State"),),
    )
    if reason := given.get("reason"):
        message = Message(
            gettext_noop("%(message)s Reason: %(reason)s"), {"message": message, "reason": reason}, message.fields
        )
    if search:
        message = Message(
            gettext_noop("%(message)s Search: %(search)s."), {"message": message, "search": search}, message.fields
        )
    return message
