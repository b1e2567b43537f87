"""Names and descriptions of the states of jobs, and the names of flags."""

from __future__ import annotations

import json

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_graphile_worker.job_flags import HEADERS_PREFIX
from django_graphile_worker.sql.inspection.job_list import State


def state_name(state: State) -> str:
    return {
        State.ANY: pgettext("page", "All"),
        State.READY: _("Ready"),
        State.LIMITED: _("Limited"),
        State.SCHEDULED: _("Scheduled"),
        State.RUNNING: _("Running"),
        State.RETRYING: _("Retrying"),
        State.FAILED: _("Failed"),
        State.FAILING: _("Failed or retrying"),
        State.WAITING: _("Waiting"),
    }[state]


def state_description(state: State) -> str:
    """Return a description of the jobs of a state, and of their order in the list."""
    return {
        State.ANY: _("Newest first."),
        State.READY: _("In the order in which they run: by priority, then by time."),
        State.LIMITED: _("Waiting for a limit or for their turn: oldest first."),
        State.SCHEDULED: _("Soonest first."),
        State.RUNNING: _("Oldest first."),
        State.RETRYING: _("Soonest first."),
        State.FAILED: _("Latest first."),
        State.FAILING: _("Latest first."),
        State.WAITING: _("Soonest first."),
    }[state]


def flag_names(text: str | None) -> list[str]:
    """Return everything in a flags column, sorted.

    Any program can write the column, and a list reads only its beginning. ``flags_from`` returns only the values that
    workers treat as flags; this function returns all values.
    """
    try:
        flags = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        # Not every user may see headers.
        return [] if HEADERS_PREFIX in str(text) else [str(text)]
    return sorted(map(str, flags)) if isinstance(flags, dict | list) else [str(flags)]
