"""Sentences about pauses: messages to the user, and entries of the admin's log."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from django_graphile_worker.admin.audit import Message
from django_graphile_worker.sql.control import Pause, PauseKind

# By what is paused: a language may inflect the other words.
PAUSED = {
    PauseKind.QUEUE: _("Paused the queue %(name)s."),
    PauseKind.TASK: _("Paused the task %(name)s."),
    PauseKind.FLAG: _("Paused the flag %(name)s."),
}
RESUMED = {
    PauseKind.QUEUE: _("Resumed the queue %(name)s."),
    PauseKind.TASK: _("Resumed the task %(name)s."),
    PauseKind.FLAG: _("Resumed the flag %(name)s."),
}
NOT_PAUSED = {
    PauseKind.QUEUE: _("The queue %(name)s was not paused."),
    PauseKind.TASK: _("The task %(name)s was not paused."),
    PauseKind.FLAG: _("The flag %(name)s was not paused."),
}


def resumed_entry() -> Message:
    return Message(gettext_noop("Resumed."))


def paused_entry(pause: Pause) -> Message:
    """Return the entry of the log about a pause: until when, and why."""
    if pause.until is None:
        message = Message(gettext_noop("Paused."))
    else:
        message = Message(gettext_noop("Paused until %(time)s."), {"time": pause.until})
    if not pause.reason:
        return message
    return Message(gettext_noop("%(message)s Reason: %(reason)s"), {"message": message, "reason": pause.reason})
