"""The orders that a user can choose for a list of jobs."""

from __future__ import annotations

from dataclasses import replace

from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.job_search.orders import ORDERS, Order
from django_graphile_worker.sql.inspection.job_search.segments import segments

_BY_DUE_TIME = ORDERS[State.SCHEDULED]
_BY_PRIORITY = ORDERS[State.READY]
# The orders of each state that an index has, so that a page takes the same time however many jobs there are.
SORTS: dict[State, dict[str, Order]] = {
    State.READY: {"priority": _BY_PRIORITY, "time": _BY_DUE_TIME},
    State.LIMITED: {"id": ORDERS[State.LIMITED]},
    State.SCHEDULED: {"priority": _BY_PRIORITY, "time": _BY_DUE_TIME},
    State.WAITING: {"priority": _BY_PRIORITY, "time": _BY_DUE_TIME},
    State.RUNNING: {"time": ORDERS[State.RUNNING]},
    State.RETRYING: {"time": ORDERS[State.RETRYING]},
    State.FAILED: {"time": replace(ORDERS[State.FAILED], is_descending=False)},
    State.FAILING: {},
    State.ANY: {"id": replace(ORDERS[State.ANY], is_descending=False)},
}


def sorts_of(criteria: Criteria) -> dict[str, Order]:
    """Return the orders in which these jobs can be listed, by the names of columns, each ascending."""
    if len(segments(criteria)) > 1:
        # Each of several walks has an order of its own.
        return {}
    # The jobs of an error group have an index by the time of their failure only.
    has_other_order = criteria.error_names and criteria.state is State.RETRYING
    return {} if has_other_order else SORTS[criteria.state]


def sort_of(criteria: Criteria, text: str | None) -> Order | None:
    """Return the order of a text such as ``time``, or ``-time`` for descending; None if these jobs cannot have it."""
    order = sorts_of(criteria).get((text or "").removeprefix("-"))
    return order.reversed() if order and text and text.startswith("-") else order
