"""The tabs of the list: the states that schedules are in, with their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.schedules.list_query import ListQuery
from django_graphile_worker.sql.schedules.listing import ScheduleState

# The states whose tabs are hidden while no schedule is in them.
RARE = frozenset(
    {ScheduleState.FAILING, ScheduleState.MISSED, ScheduleState.LATE, ScheduleState.UNKNOWN_TASK, ScheduleState.ENDED}
)


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab; `css_class` has the colour of the state."""

    name: str
    url: str
    count: str
    is_current: bool
    css_class: str


def state_names() -> dict[ScheduleState, str]:
    """Return the names of the tabs, in their order."""
    return {
        ScheduleState.ANY: _("All schedules"),
        ScheduleState.ACTIVE: _("Active"),
        ScheduleState.PAUSED: _("Paused"),
        ScheduleState.DISABLED: pgettext("schedules", "Disabled"),
        ScheduleState.ENDED: _("Ended"),
        ScheduleState.FAILING: _("Failing"),
        ScheduleState.MISSED: _("Missed"),
        ScheduleState.LATE: _("Late"),
        ScheduleState.UNKNOWN_TASK: _("Unknown task"),
    }


def make_tabs(
    page: PageAdmin, request: HttpRequest, query: ListQuery, counts: Mapping[ScheduleState, int]
) -> list[Tab]:
    """Return the tabs, which keep the search and the filters."""
    return [
        Tab(
            name=name,
            url=page.url(
                request, "schedule", **query.parameters(state="" if state is ScheduleState.ANY else state.value)
            ),
            count=formatting.number(counts[state]),
            is_current=state is query.state,
            css_class="gw-tab-failed" if state in RARE and state is not ScheduleState.ENDED else "",
        )
        for state, name in state_names().items()
        if counts[state] or state is query.state or state not in RARE
    ]
