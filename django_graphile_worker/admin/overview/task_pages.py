"""The pages of the table of tasks: the tasks of one page, and what the page leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker.admin.charts.chart import whole_number
from django_graphile_worker.admin.pages import PageAdmin

TASKS_PER_PAGE = 50
NUMBER, SEARCH = "page", "tasks"


@dataclass(frozen=True, slots=True)
class TaskPage:
    """The names of one page, its number, and how many tasks there are."""

    names: Sequence[str]
    number: int
    pages: int
    # The tasks that match the search, and all tasks.
    matching: int
    total: int
    search: str

    @classmethod
    def of(cls, ranked: Sequence[str], *, number: int, search: str) -> TaskPage:
        """Return a page of the tasks whose names contain the search; the nearest page if there is no such number."""
        matching = [name for name in ranked if search.lower() in name.lower()]
        pages = max(-(-len(matching) // TASKS_PER_PAGE), 1)
        number = min(max(number, 1), pages)
        names = matching[(number - 1) * TASKS_PER_PAGE : number * TASKS_PER_PAGE]
        return cls(names, number, pages, len(matching), len(ranked), search)


def requested_page(request: HttpRequest) -> tuple[int, str]:
    """Return the number of the page and the search that the request has."""
    number = request.GET.get(NUMBER, "")
    search = request.GET.get(SEARCH, "").replace("\x00", "").strip()
    return int(number) if number.isdecimal() and len(number) < 6 else 1, search


def task_page_context(page: PageAdmin, request: HttpRequest, shown: TaskPage, query: dict[str, Any]) -> dict[str, Any]:
    """Return what the template says about the page, and the addresses of its neighbours."""

    def address(number: int) -> str:
        is_there = 1 <= number <= shown.pages and number != shown.number
        return page.url(request, "overview", **query, tasks=shown.search, page=number) if is_there else ""

    return {
        "task_search": shown.search,
        "has_task_search": bool(shown.search) or shown.total > TASKS_PER_PAGE,
        "task_extent": _extent(shown),
        "all_tasks_url": page.url(request, "overview", **query) if shown.search else "",
        "previous_tasks_url": address(shown.number - 1),
        "next_tasks_url": address(shown.number + 1),
    }


def _extent(shown: TaskPage) -> str:
    """Say which tasks the table shows, unless it shows all of them."""
    if shown.pages == 1 and not shown.search:
        return ""
    first = (shown.number - 1) * TASKS_PER_PAGE + 1 if shown.names else 0
    numbers = {
        "first": whole_number(first),
        "last": whole_number(first + len(shown.names) - 1 if shown.names else 0),
        "matching": whole_number(shown.matching),
        "total": whole_number(shown.total),
        "shown": whole_number(len(shown.names)),
    }
    if shown.search:
        return (
            _("%(shown)s of %(matching)s matching tasks, of %(total)s in all. Tasks with failures come first.")
            % numbers
        )
    if shown.number == 1:
        return _("%(shown)s of %(total)s tasks. Tasks with failures come first.") % numbers
    return _("Tasks %(first)s to %(last)s of %(total)s. Tasks with failures come first.") % numbers
