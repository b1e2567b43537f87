"""The order in which the jobs of each state are shown, and the SQL of a walk in that order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql.inspection.criteria import Criteria, State


class Order(Frozen):
    """The columns by which jobs of a state are sorted; the last column is always the id."""

    columns: tuple[str, ...]
    is_descending: bool = False

    def by(self, source: str) -> str:
        direction = " desc" if self.is_descending else ""
        return ", ".join(f"{source}.{column}{direction}" for column in self.columns)

    @property
    def operator(self) -> str:
        return "<" if self.is_descending else ">"

    def reversed(self) -> Order:
        return replace(self, is_descending=not self.is_descending)

    def after(self, source: str) -> str:
        """Return the condition for jobs after the place where the last page ended."""
        left = ", ".join(f"{source}.{column}" for column in self.columns)
        right = ", ".join(f"%(after_{column})s::{TYPES[column]}" for column in self.columns)
        return f"({left}) {self.operator} ({right})"

    def token(self, source: str) -> str:
        """Return an expression for the place of a row, as text."""
        return f"concat_ws('~', {', '.join(f'{source}.{column}::text' for column in self.columns)})"


TYPES = {
    "priority": "int",
    "run_at": "timestamptz",
    "locked_at": "timestamptz",
    "updated_at": "timestamptz",
    "id": "bigint",
}

ORDERS = {
    State.READY: Order(columns=("priority", "run_at", "id")),
    State.LIMITED: Order(columns=("id",)),
    State.SCHEDULED: Order(columns=("run_at", "id")),
    State.WAITING: Order(columns=("run_at", "id")),
    State.RUNNING: Order(columns=("locked_at", "id")),
    State.RETRYING: Order(columns=("run_at", "id")),
    State.FAILED: Order(columns=("updated_at", "id"), is_descending=True),
    State.FAILING: Order(columns=("run_at", "id"), is_descending=True),
    State.ANY: Order(columns=("id",), is_descending=True),
}
BY_FAILURE = Order(columns=("updated_at", "id"), is_descending=True)


def order_of(criteria: Criteria) -> Order:
    """Return the order of the state; jobs of one error group are sorted by their latest failure instead."""
    is_kind = criteria.error_names and criteria.state in (State.RETRYING, State.FAILED, State.FAILING)
    return BY_FAILURE if is_kind else ORDERS[criteria.state]


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
    # The jobs of an error group have an index by the time of their failure only.
    has_other_order = criteria.error_names and criteria.state is State.RETRYING
    return {} if has_other_order else SORTS[criteria.state]


def sort_of(criteria: Criteria, text: str | None) -> Order | None:
    """Return the order of a text such as ``time``, or ``-time`` for descending; None if these jobs cannot have it."""
    order = sorts_of(criteria).get((text or "").removeprefix("-"))
    return order.reversed() if order and text and text.startswith("-") else order


class Walk(Frozen):
    """The SQL of a walk: ``with`` clauses, a body that selects the columns of the order, and its parameters.

    The body also has the parameter ``most``. ``covers_names`` is True if the walk meets the criteria for tasks, queues
    and error names.
    """

    ctes: str
    body: str
    parameters: dict[str, Any]
    covers_names: bool
