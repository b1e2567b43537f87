"""What the list of schedules shows: the search, the filters, the order and the page of its address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from django_graphile_worker.sql.schedules.listing import ORDERS, ScheduleState

PAGE_SIZE = 50
# The largest page number that is read from the address of the list.
LAST_PAGE = 10_000
LONGEST_TEXT = 500
# Which of the two kinds a list shows; "" for both.
DATABASE, CODE = "database", "code"
DEFAULT_SORT = "name"


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The parameters of the address; a value that is not valid is left out."""

    text: str = ""
    state: ScheduleState = ScheduleState.ANY
    task: str = ""
    source: str = ""
    sort: str = DEFAULT_SORT
    page: int = 1

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.text.lower().split()))

    @property
    def is_filtered(self) -> bool:
        """Whether the list leaves any schedule out, apart from the tabs."""
        return bool(self.text.strip() or self.task or self.source)

    @property
    def offset(self) -> int:
        return (self.page - 1) * PAGE_SIZE

    def parameters(self, **changes: Any) -> dict[str, str]:
        """Return the parameters of the address of this list, or of a list that differs from it."""
        values = {
            "q": self.text,
            "state": self.state.value if self.state is not ScheduleState.ANY else "",
            "task": self.task,
            "source": self.source,
            "sort": self.sort if self.sort != DEFAULT_SORT else "",
        }
        return {name: value for name, value in {**values, **changes}.items() if value}


def read_query(values: Any) -> ListQuery:
    """Read the parameters of an address, or the fields of a form that has them."""
    state, source, sort = values.get("state", ""), values.get("source", ""), values.get("sort", "")
    return ListQuery(
        text=_text(values, "q"),
        state=ScheduleState(state) if state in list(ScheduleState) else ScheduleState.ANY,
        task=_text(values, "task"),
        source=source if source in (DATABASE, CODE) else "",
        sort=sort if sort in ORDERS else DEFAULT_SORT,
        page=_page(values.get("page", "")),
    )


def query_of(request: HttpRequest) -> ListQuery:
    return read_query(request.POST if request.method == "POST" else request.GET)


def _text(values: Any, name: str) -> str:
    return str(values.get(name, "")).replace("\x00", "")[:LONGEST_TEXT]


def _page(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= 5
    return min(max(int(text), 1), LAST_PAGE) if is_number else 1
