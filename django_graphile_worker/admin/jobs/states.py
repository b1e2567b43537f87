"""The states of jobs, in words."""

from __future__ import annotations

from django.utils.translation import gettext as _

from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.inspection.criteria import State


def name_of(state: State) -> str:
    return {
        State.ANY: _("All"),
        State.READY: _("Ready"),
        State.SCHEDULED: _("Scheduled"),
        State.RUNNING: _("Running"),
        State.RETRYING: _("Retrying"),
        State.FAILED: _("Permanently failed"),
        State.FAILING: _("Failing"),
        State.WAITING: _("Waiting"),
    }[state]


def hint_of(state: State) -> str:
    return {
        State.ANY: _("The newest first."),
        State.READY: _("In the order in which they run: by priority, then by time."),
        State.SCHEDULED: _("The soonest first."),
        State.RUNNING: _("In the hand of a worker: the longest held first."),
        State.RETRYING: _("Failed before, and will be tried again: the soonest first."),
        State.FAILED: _("No attempts left: the latest first."),
        State.FAILING: _("Failed, whether or not they will be tried again: the latest first."),
        State.WAITING: _("The soonest first."),
    }[state]


def flags_of(text: str | None) -> list[str]:
    """Return the flags in a column, sorted; a column that holds something else is shown as it is."""
    if not text or text in ("{}", "[]"):
        return []
    return sorted(flags_from(text)) or [text]
