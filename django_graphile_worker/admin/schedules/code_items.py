"""The items of the crontab beside the schedules: they are in code, so that the pages only show, run and pause them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.admin import late_schedules
from django_graphile_worker.admin.project_items import read_crontab
from django_graphile_worker.admin.schedules.list_query import DATABASE, ListQuery
from django_graphile_worker.admin.schedules.next_times import NUMBER
from django_graphile_worker.crontab import CronItem, upcoming
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.sql.schedules.listing import ListedItem, ScheduleState

# The search for the next runs of a callable calls it for each minute, so it ends after this time.
LOOK_AHEAD = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class CodeItem:
    """An item of the crontab, with its row in the database; an item that no worker has seen yet has no row."""

    item: CronItem
    known: KnownCrontab | None
    now: datetime
    is_failing: bool = False
    has_missed: bool = False

    @property
    def name(self) -> str:
        return self.item.name

    @property
    def is_paused(self) -> bool:
        return self.known is not None and self.known.is_paused

    @property
    def due_since(self) -> datetime | None:
        """The first time that no worker fired in time."""
        return late_schedules.due_since(self.item, self.known, self.now)

    @property
    def last_tick(self) -> datetime | None:
        return None if self.known is None else self.known.last_execution

    def next_times(self, number: int = NUMBER) -> tuple[datetime, ...]:
        if self.is_paused:
            return ()
        try:
            return upcoming(self.item, self.now, number, look_ahead=LOOK_AHEAD)
        except Exception:  # the match of an item may be a function of the project, which may raise anything
            return ()

    def is_in(self, state: ScheduleState) -> bool:
        if state is ScheduleState.FAILING:
            return self.is_failing
        if state is ScheduleState.MISSED:
            return self.has_missed
        if state is ScheduleState.LATE:
            return self.due_since is not None
        own = ScheduleState.PAUSED if self.is_paused else ScheduleState.ACTIVE
        return state in (own, ScheduleState.ANY)

    def matches(self, query: ListQuery) -> bool:
        """Return whether the search and the filters of a list include the item, in whatever state it is."""
        text = f"{self.name} {self.item.task}".lower()
        is_of_task = not query.task or self.item.task == query.task
        return query.source != DATABASE and is_of_task and all(word in text for word in query.words)

    def listed(self, sort: str) -> ListedItem:
        """Return what the list is sorted by. A callable is not asked for times that the page does not show."""
        is_cheap = isinstance(self.item.match, str)
        times = self.next_times(1) if sort.endswith("next") and is_cheap else ()
        return ListedItem(self.name, times[0] if times else None, self.last_tick)


@dataclass(frozen=True, slots=True)
class Crontab:
    """The items of this site, the mistakes in its crontab, and the rows of items that it does not have."""

    items: Mapping[str, CodeItem]
    mistakes: list[str]
    others: Mapping[str, KnownCrontab]


def read_items(
    cursor: Any, now: datetime, *, schema: str, failing: Collection[str] = (), missed: Collection[str] = ()
) -> Crontab:
    """Return the crontab of this site with what the database says about its items."""
    items, mistakes = read_crontab()
    known = from_code.known_items(cursor, schema=schema)
    found = {
        item.name: CodeItem(
            item, known.get(item.name), now, is_failing=item.name in failing, has_missed=item.name in missed
        )
        for item in items
    }
    # With mistakes the crontab has no items, and every known item would be listed as removed.
    others = {} if mistakes else {name: row for name, row in sorted(known.items()) if name not in found}
    return Crontab(found, mistakes, others)
