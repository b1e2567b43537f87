"""The order in which the jobs of each state are shown, and the SQL of a walk in that order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
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
    is_named = criteria.error_names or any(all(each.error_names for each in group) for group in criteria.any_of)
    is_kind = is_named and criteria.state in (State.RETRYING, State.FAILED, State.FAILING)
    return BY_FAILURE if is_kind else ORDERS[criteria.state]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The SQL of a walk: ``with`` clauses, a body that selects the columns of the order, and its parameters.

    The body also has the parameter ``most``. ``covers_names`` is True if the walk meets the criteria for tasks, queues
    and error names, ``covers_groups`` if it meets those for workers, patterns and groups. ``covered_groups`` has the
    numbers of the groups that it meets otherwise.
    """

    ctes: str
    body: str
    parameters: dict[str, Any]
    covers_names: bool
    covers_groups: bool = False
    covered_groups: tuple[int, ...] = ()
