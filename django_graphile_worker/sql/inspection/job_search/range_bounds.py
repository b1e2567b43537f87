"""The bound of a walk along many ranges: the place behind which no range has to be read.

Without a bound, a page of 500 jobs reads 500 jobs of each range, because all of them could be in the range that comes
first. With a bound, a few jobs of each range are read first. The last of the first 500 among them is a place that the
page does not pass, so each range is read up to that place only.
"""

from __future__ import annotations

from collections.abc import Callable

from django_graphile_worker.sql.inspection.job_search.orders import Order

# How many times the rows of a page are read from all ranges together, to find the bound. The bound is near the end of
# the page if the jobs are spread over the ranges evenly, and a page reads more jobs if they are not.
SPREAD = 4

_FEW = f"(select {SPREAD} * %(most)s::bigint / greatest(count(*), 1) + 1 from range)"

# The body of a walk, by the limit of a range, by what is joined with the ranges, and by the conditions of their jobs.
Body = Callable[[str, str, list[str]], str]


def bounded(body: Body, order: Order) -> tuple[str, str]:
    """Return the further ``with`` clauses of a walk, and the body that ends each range at the bound."""
    columns = [column for column in order.columns if column != "id"]
    places = ", ".join(f"coalesce(max(place.{column}), {_beyond(column, order)}) as {column}" for column in columns)
    clauses = f"""probe as ({body(_FEW, "", [])}),
    bound as materialized (
        select {places}
        from (select * from probe order by {order.by("probe")} offset %(most)s::bigint - 1 limit 1) as place)"""
    return clauses, body("%(most)s", f"join bound on {_reaches_range(order)}", [_reaches_job(order)])


def _beyond(column: str, order: Order) -> str:
    """Return a value that no job passes, for ranges with fewer jobs than a page."""
    if column == "priority":
        return "-32768" if order.is_descending else "32767"
    return f"'{_far(order)}'::timestamptz"


def _far(order: Order) -> str:
    return "-infinity" if order.is_descending else "infinity"


def _before(order: Order) -> str:
    return order.reversed().operator + "="


def _reaches_range(order: Order) -> str:
    return f"range.priority {_before(order)} bound.priority" if "priority" in order.columns else "true"


def _reaches_job(order: Order) -> str:
    bound = "bound.run_at"
    if "priority" in order.columns:
        bound = f"case when range.priority = bound.priority then {bound} else '{_far(order)}' end"
    return f"job.run_at {_before(order)} {bound}"
