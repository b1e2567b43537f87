"""Entries of the admin's log about actions on jobs, as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_noop as _

from django_graphile_worker.admin.audit import Message

# By the name of an action.
SENTENCES = {
    "run_now": _("Run now."),
    "run_next": _("Run next."),
    "retry": _("Retried."),
    "reschedule": _("Rescheduled: %(changes)s."),
    "cancel": _("Cancelled."),
    "fail": _("Failed."),
    "delete": _("Deleted."),
}
# By the name of a field of a form: a part of a sentence, and the label of the field.
CHANGES = {
    "run_at": (_("run at %(value)s"), _("Run at")),
    "priority": (_("priority %(value)s"), _("Priority")),
    "attempts": (_("attempts so far %(value)s"), _("Attempts so far")),
    "max_attempts": (_("maximum attempts %(value)s"), _("Maximum attempts")),
}


def log_message(action: str, title: str, data: Mapping[str, Any], search: str = "") -> Message:
    """Return the entry for an action: what it did with the data of its form, and the search that selected the jobs."""
    given = {name: value for name, value in data.items() if value not in (None, "")}
    changed = [name for name in given if name in CHANGES]
    changes = [Message(CHANGES[name][0], {"value": given[name]}) for name in changed]
    message = Message(
        SENTENCES.get(action, "%(title)s."),
        {"changes": changes, "title": title},
        fields=tuple(CHANGES[name][1] for name in changed) or (_("State"),),
    )
    if reason := given.get("reason"):
        message = Message(_("%(message)s Reason: %(reason)s"), {"message": message, "reason": reason}, message.fields)
    if search:
        message = Message(_("%(message)s Search: %(search)s."), {"message": message, "search": search}, message.fields)
    return message
