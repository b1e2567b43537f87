"""A page of the list of schedules, with the items of the crontab, and its filters.

The ids, states and times of all schedules that match are read with one statement. They are counted and sorted here,
together with the items of the crontab, which no table has; then the rows of the page are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.views.main import ChangeList
from django.db import connections
from django.db.models import BooleanField, CharField, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from django_graphile_worker import conf
from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.list_page import NO_FILTERS, SelectFilter
from django_graphile_worker.admin.schedules.code_items import CodeItem, Facts
from django_graphile_worker.admin.schedules.rows import SHOWN_RUNS, Row, RowSource
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.schedules import listing, runs
from django_graphile_worker.sql.schedules.listing import CONDITIONS, ScheduleCriteria, ScheduleState
from django_graphile_worker.sql.schedules.runs import Run, RunOutcome

# The values of the filter that tells the two kinds apart.
DATABASE, CODE = "database", "code"
# The states whose tabs are hidden while no schedule is in them.
RARE = frozenset(
    {ScheduleState.FAILING, ScheduleState.MISSED, ScheduleState.LATE, ScheduleState.UNKNOWN_TASK, ScheduleState.ENDED}
)
# The orders in which items of the crontab are sorted among the schedules. By other columns they come last.
SORTED = frozenset({"name", "next_at", "last_tick"})
# The column that shows the payload without secrets, in the place of the field.
PAYLOAD_COLUMN = "redacted_payload"
# By parameter, what the filters of this page say; with a filter of the project, no item is shown.
OWN_FILTERS = frozenset({"state", "task", "source"})


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


def _facts(request: HttpRequest) -> Facts:
    """Return what ScheduleAdmin has read for the page."""
    found: Facts = request.schedule_facts  # type: ignore[attr-defined]
    return found


def _criteria(request: HttpRequest, state: ScheduleState = ScheduleState.ANY) -> tuple[ScheduleCriteria, str]:
    """Return the criteria of a state, and the name of the table."""
    facts = _facts(request)
    criteria = ScheduleCriteria(
        state=state, unknown_tasks=tuple(sorted(facts.unknown_tasks)), sees_outcomes=facts.sees_outcomes
    )
    quote = connections[databases.selected_alias(request)].ops.quote_name
    return criteria, quote(Schedule._meta.db_table)


class StateFilter(SimpleListFilter):
    """The tabs of the list."""

    title = gettext_lazy("State")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, name) for state, name in state_names().items() if state is not ScheduleState.ANY]

    @property
    def state(self) -> ScheduleState:
        value = self.value() or ""
        return ScheduleState(value) if value in ScheduleState._value2member_map_ else ScheduleState.ANY

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        if self.state is ScheduleState.ANY:
            return queryset
        criteria, table = _criteria(request, self.state)
        text, parameters = listing.expression(criteria, table, schema=conf.schema_of_models())
        return queryset.filter(RawSQL(text, parameters, output_field=BooleanField()))


class TaskFilter(SelectFilter):
    """The task of the schedules."""

    title = gettext_lazy("Task")
    parameter_name = "task"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        given = request.GET.get(self.parameter_name)
        return [(name, name) for name in sorted({*model_admin.known_tasks(request), *([given] if given else [])})]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        task = self.value()
        return queryset.filter(task=task.replace("\x00", "")) if task else queryset


class SourceFilter(SelectFilter):
    """Where a schedule is defined."""

    title = gettext_lazy("Where it is defined")
    parameter_name = "source"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(DATABASE, _("in the database")), (CODE, _("in code"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        source = self.value()
        return queryset.filter(is_from_code=source == CODE) if source in (DATABASE, CODE) else queryset


class Entry(NamedTuple):
    """A schedule that matches, or an item of the crontab, by what it is counted and sorted."""

    name: str
    time: datetime | None
    states: frozenset[ScheduleState]
    pk: int | None = None
    item: CodeItem | None = None


class ScheduleChangeList(ChangeList):
    """A page of the list."""

    model_admin: Any

    def __init__(self, request: HttpRequest, model: Any, list_display: Any, links: Any, *args: Any) -> None:
        columns: Mapping[Any, str] = request.schedule_columns  # type: ignore[attr-defined]
        shown = [columns.get(name, name) for name in list_display]
        if IS_POPUP_VAR in request.GET:
            # The link of Django gives the schedule to the page that has opened the popup.
            links = links or ()
        super().__init__(request, model, [name for name in shown if name], links, *args)
        self.list_editable = ()

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """Leave out what is not a filter."""
        found: dict[str, Any] = super().get_filters_params(params)
        return {name: value for name, value in found.items() if name not in NO_FILTERS}

    @property
    def state_filter(self) -> StateFilter | None:
        """The tabs; None if the project has left them out."""
        return next((each for each in self.filter_specs if isinstance(each, StateFilter)), None)

    @property
    def state(self) -> ScheduleState:
        return ScheduleState.ANY if self.state_filter is None else self.state_filter.state

    def get_results(self, request: HttpRequest) -> None:
        """Count what matches in each state, and read the schedules of the page with what their rows show."""
        facts = self.facts = _facts(request)
        entries = self._entries(request, facts)
        combinations = Counter(entry.states for entry in entries)
        self.counts = {state: sum(combinations[each] for each in combinations if state in each) for state in CONDITIONS}
        state = self.state
        shown = [entry for entry in entries if state in entry.states]
        self.paginator = self.model_admin.get_paginator(request, shown, self.list_per_page)
        page = self.paginator.get_page(self.page_num)
        self.page_num = page.number
        self.result_list = [*self._read(request, facts, list(page))]
        self.result_count = len(shown)
        # Items of the crontab cannot be selected.
        self.selectable = sum(entry.pk is not None for entry in shown)
        self.full_result_count, self.show_full_result_count, self.show_admin_actions = None, False, True
        self.can_show_all, self.multi_page = False, self.paginator.num_pages > 1

    def _entries(self, request: HttpRequest, facts: Facts) -> list[Entry]:
        """Return what matches the search and the filters, in whatever state it is, in the order of the list."""
        found = self.get_queryset(request, exclude_parameters=[StateFilter.parameter_name])
        order = next(iter(self.get_ordering(request, found)), None)
        column = order.removeprefix("-") if isinstance(order, str) else ""
        criteria, table = _criteria(request)
        text, parameters = listing.states_expression(criteria, table, schema=conf.schema_of_models())
        states = RawSQL(text, parameters, output_field=CharField())
        time = column if column in ("next_at", "last_tick") else "pk"
        with databases.reading(databases.selected_alias(request)):
            rows = list(found.annotate(gw_states=states).values_list("pk", "name", time, "gw_states"))
        states_of = {letters: _states(letters) for letters in {row[-1] for row in rows}}
        entries = [
            Entry(name, self._time(column, value, states_of[letters]), states_of[letters], pk=pk)
            for pk, name, value, letters in rows
        ]
        entries += [self._entry_of(item, column) for item in self._items(request, facts)]
        if column in SORTED:
            entries.sort(key=_sort_key, reverse=str(order).startswith("-"))
        return entries

    def _time(self, column: str, value: Any, states: frozenset[ScheduleState]) -> datetime | None:
        if column == "next_at":
            return formatting.LATEST if ScheduleState.DISABLED in states or value is None else formatting.aware(value)
        return formatting.aware(value) if column == "last_tick" and value is not None else None

    def _entry_of(self, item: CodeItem, column: str) -> Entry:
        time = item.last_tick if column == "last_tick" else None
        if column == "next_at":
            time = item.next_at or formatting.LATEST
        return Entry(item.item.name, time, item.states(), item=item)

    def _items(self, request: HttpRequest, facts: Facts) -> Iterator[CodeItem]:
        """Yield the items of the crontab that match the search and the filters."""
        if not self.get_filters_params().keys() <= OWN_FILTERS or request.GET.get("source") == DATABASE:
            return
        words, task = self.query.lower().split(), request.GET.get("task")
        for each in facts.items:
            text = f"{each.item.name} {each.item.task}".lower()
            if (not task or each.item.task == task) and all(word in text for word in words):
                yield each

    def _read(self, request: HttpRequest, facts: Facts, entries: list[Entry]) -> Iterator[Schedule]:
        """Yield the schedules of the page, each with its row."""
        ids = [entry.pk for entry in entries if entry.pk is not None]
        names = [entry.name for entry in entries if entry.item is not None]
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            read = self.root_queryset.filter(pk__in=ids)
            if PAYLOAD_COLUMN not in self.list_display:
                read = read.defer("payload")
            schedules = {each.pk: each for each in read}
            found: dict[Any, list[Run]] = {}
            if ids:
                found |= runs.runs_of_schedules(cursor, ids, schema=schema, number=SHOWN_RUNS)
            if names:
                found |= runs.runs_of_crontabs(cursor, names, schema=schema, number=SHOWN_RUNS)
        jobs = {run.job_id: run.outcome for each in found.values() for run in each if run.job_id is not None}
        visible = self.model_admin.visible_among(request, jobs)
        # Of the others, the database knows nothing any more, and their pages would say so.
        untold = (RunOutcome.UNKNOWN, RunOutcome.REPLACED)
        linked = frozenset(job for job in visible if jobs[job] not in untold)
        source = RowSource(self.model_admin, request, facts.now, linked)
        for entry in entries:
            schedule = entry.item.as_schedule() if entry.item is not None else schedules.get(entry.pk or 0)
            # A schedule may have been deleted since its id was read.
            if schedule is not None:
                of_entry = found[entry.name if entry.pk is None else entry.pk]
                told = [run for run in of_entry if run.job_id is None or run.job_id in visible]
                shown: Any = schedule
                shown.row = Row(source, schedule, entry.item, told, entry.states)
                yield schedule

    def tabs(self) -> list[dict[str, Any]]:
        """Return the tabs, which keep the search and the filters."""
        if self.state_filter is None:
            return []
        return [
            {
                "name": name,
                "url": self.get_query_string({"state": None if state is ScheduleState.ANY else state.value}, ["p"]),
                "count": formatting.number(self.counts[state]),
                "is_current": state is self.state,
                "css_class": "gw-tab-failed" if state in RARE and state is not ScheduleState.ENDED else "",
            }
            for state, name in state_names().items()
            if self.counts[state] or state is self.state or state not in RARE
        ]

    @property
    def is_filtered(self) -> bool:
        return bool(self.query or self.get_filters_params())

    @property
    def has_open_filters(self) -> bool:
        """Whether the list leaves schedules out by something that its tabs and its search do not show."""
        return bool(self.get_filters_params().keys() - {StateFilter.parameter_name})

    def kept_parameters(self) -> list[tuple[str, str]]:
        """Return what the form of the search keeps of the URL."""
        return [(name, value) for name, value in self.params.items() if name != "q"]

    def place(self) -> str:
        values = {"page": formatting.number(self.page_num), "pages": formatting.number(self.paginator.num_pages)}
        return _("Page %(page)s of %(pages)s") % values

    def page_url(self, number: int) -> str:
        return self.get_query_string({"p": number}) if 1 <= number <= self.paginator.num_pages else ""

    def previous_url(self) -> str:
        return self.page_url(self.page_num - 1)

    def next_url(self) -> str:
        return self.page_url(self.page_num + 1)

    def total_text(self) -> str:
        return formatting.number(self.selectable)

    def removed_items(self) -> list[dict[str, Any]]:
        """Return the items that workers have scheduled, and that are no longer in the crontab of this site."""
        if self.is_filtered:
            return []
        return [
            {
                "name": name,
                "known_since": formatting.relative_time(each.known_since),
                "last_run": _("paused") if each.is_paused else formatting.relative_time(each.last_execution),
            }
            for name, each in self.facts.removed.items()
        ]


def _states(letters: str) -> frozenset[ScheduleState]:
    """Return the states for a text of ``listing.states_expression``."""
    return frozenset(state for state, letter in zip(CONDITIONS, letters, strict=True) if letter == "t")


_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def _sort_key(entry: Entry) -> tuple[Any, ...]:
    return (entry.time or _LONG_AGO, entry.name.lower(), entry.name)
