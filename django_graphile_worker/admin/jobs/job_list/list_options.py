"""How a user wants the list of jobs: order, columns, and number of jobs on a page.

The address of the list has them, so that a link shows the same list to others. The session of the user remembers
columns and page size for addresses without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.job_search.orders import Order, order_of
from django_graphile_worker.sql.inspection.job_search.sorts import sort_of, sorts_of

SIZES = (25, 50, 100, 200)
DEFAULT_SIZE = 50
# The columns that a user can choose, and those of a user that has not chosen.
COLUMNS = ("payload", "created")
DEFAULT_COLUMNS = ("payload",)
SESSION_KEY = "graphile_worker.job_list"


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The page size, the columns, and the order as the address has it ("" for the order of the state)."""

    size: int
    columns: tuple[str, ...]
    sort: str
    order: Order
    # The part of these options that the address has, for links to the same list.
    parameters: dict[str, str]


def read_options(request: HttpRequest, criteria: Criteria) -> ListOptions:
    """Return the options of the address, else those that the session remembers, and remember those of the address."""
    given = {name: value for name, value in (("size", _size(request)), ("columns", _columns(request))) if value}
    session = getattr(request, "session", {})
    stored = session.get(SESSION_KEY, {})
    remembered = stored if isinstance(stored, dict) else {}
    if given and remembered | given != remembered:
        session[SESSION_KEY] = remembered | given
    chosen = remembered | given
    sort = request.GET.get("sort", "")
    order = sort_of(criteria, sort)
    return ListOptions(
        size=int(chosen.get("size", DEFAULT_SIZE)),
        columns=_known_columns(chosen.get("columns", ",".join(DEFAULT_COLUMNS))),
        sort=sort if order else "",
        order=order or order_of(criteria),
        parameters=given | ({"sort": sort} if order else {}),
    )


def _size(request: HttpRequest) -> str:
    text = request.GET.get("size", "")
    return text if text in map(str, SIZES) else ""


def _columns(request: HttpRequest) -> str:
    """Return the columns of the address, separated by commas; "" if it names none, and "none" for no columns."""
    texts = request.GET.getlist("columns")
    if not texts:
        return ""
    return ",".join(_known_columns(",".join(texts))) or "none"


def _known_columns(text: str) -> tuple[str, ...]:
    names = text.split(",")
    return tuple(name for name in COLUMNS if name in names)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a column, with the address that sorts by it, and how the list is sorted by it now."""

    name: str
    label: str
    css_class: str = ""
    url: str = ""
    # The value of aria-sort; "" if the list is not sorted by this column.
    direction: str = ""


def headers(criteria: Criteria, options: ListOptions, make_url: Any, *, sees_payloads: bool) -> list[Header]:
    """Return the headers of the table. `make_url` returns the address of the list for an order."""
    sorts = sorts_of(criteria)

    def header(name: str, label: str, css_class: str = "") -> Header:
        if name not in sorts:
            return Header(name, label, css_class)
        is_current = sorts[name].columns == options.order.columns
        is_descending = options.order.is_descending
        following = f"-{name}" if is_current and not is_descending else name
        direction = "descending" if is_descending else "ascending"
        return Header(name, label, css_class, make_url(following), direction if is_current else "")

    return [header(*each) for each in _columns_of(criteria.state, shown_columns(options, sees_payloads=sees_payloads))]


def shown_columns(options: ListOptions, *, sees_payloads: bool) -> tuple[str, ...]:
    """Return the chosen columns that the user may see."""
    return tuple(name for name in options.columns if name != "payload" or sees_payloads)


def _columns_of(state: State, chosen: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield "id", _("Job")
    yield "task", _("Task")
    if "payload" in chosen:
        yield "payload", _("Payload")
    yield "state", _("State")
    if state is State.RUNNING:
        yield "worker", _("Worker")
    yield "queue", _("Queue")
    yield "priority", _("Priority"), "gw-num"
    yield "attempts", _("Attempts"), "gw-num"
    if "created" in chosen:
        yield "created", _("Created")
    yield "time", _time_label(state)


def _time_label(state: State) -> str:
    if state is State.RUNNING:
        return _("Since")
    if state is State.FAILED:
        return _("Failed")
    return _("Time") if state in (State.ANY, State.FAILING) else _("Run at")
