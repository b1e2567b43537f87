"""The list of schedules, with the items of the crontab: what each does, its next times and its last runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.databases import Session
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.admin.schedules.actions.schedule_actions import ACTIONS
from django_graphile_worker.admin.schedules.code_items import CodeItem, Crontab, read_items
from django_graphile_worker.admin.schedules.list_query import CODE, DATABASE, PAGE_SIZE, ListQuery, query_of
from django_graphile_worker.admin.schedules.permissions import SchedulePermissionsAdmin
from django_graphile_worker.admin.schedules.problems import Problems, read_problems
from django_graphile_worker.admin.schedules.run_strip import make_strip
from django_graphile_worker.admin.schedules.schedule_rows import Row, RowMaker
from django_graphile_worker.admin.schedules.tabs import make_tabs
from django_graphile_worker.admin.visible_jobs import NO_IDS, ids_subquery
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.inspection.job_search.criteria import Subquery
from django_graphile_worker.sql.schedules import listing, runs
from django_graphile_worker.sql.schedules.listing import Entry, ScheduleCriteria, ScheduleState
from django_graphile_worker.sql.schedules.runs import Run, RunOutcome

SHOWN_RUNS = 20
MOST_TASKS = 200


@dataclass(frozen=True, slots=True)
class Page:
    """What the database and the code say about a page of the list."""

    problems: Problems
    counts: Mapping[ScheduleState, int]
    entries: list[Entry]
    schedules: Mapping[int, Schedule]
    crontab: Crontab
    runs: Mapping[int, list[Run]]
    item_runs: Mapping[str, list[Run]]
    # Whether the user may see every schedule.
    sees_all: bool

    @property
    def all_runs(self) -> list[Run]:
        return [run for found in (*self.runs.values(), *self.item_runs.values()) for run in found]

    @property
    def job_ids(self) -> list[int]:
        return [run.job_id for run in self.all_runs if run.job_id is not None]

    @property
    def told_job_ids(self) -> frozenset[int]:
        """The jobs that have a page: of the others, the database knows nothing any more."""
        untold = (RunOutcome.UNKNOWN, RunOutcome.REPLACED)
        return frozenset(run.job_id for run in self.all_runs if run.job_id is not None and run.outcome not in untold)


class ScheduleListAdmin(SchedulePermissionsAdmin):
    """The list. A subclass whose `get_queryset` returns fewer schedules restricts the list and every action."""

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        now, query = timezone.now(), query_of(request)
        page = self._read(request, query, now)
        rows = self._rows(request, page, now)
        context = {
            "rows": rows,
            "has_buttons": any(row.buttons or row.menu for row in rows),
            "tabs": make_tabs(self, request, query, page.counts),
            "query": query,
            "headers": self._headers(request, query),
            "tasks": self._tasks(page, query),
            "sources": [(DATABASE, _("in the database")), (CODE, _("in code"))],
            "mistakes": page.crontab.mistakes,
            "removed_items": _removed_items(page.crontab) if query == ListQuery() else [],
            "add_url": self.url(request, "schedule", "add"),
            "act_url": self.url(request, "schedule", "act"),
            "actions": [action for action in ACTIONS.values() if getattr(self, action.permission)(request)]
            if self.sees_schedules(request)
            else [],
            "total": formatting.number(page.counts[query.state]),
            "back_url": request.get_full_path(),
            **self._paging(request, query, page.counts[query.state]),
        }
        return self.render(request, "schedules.html", context)

    def list_url(self, request: HttpRequest, **parameters: Any) -> str:
        return self.url(request, "schedule", "changelist", **parameters)

    def back_url(self, request: HttpRequest) -> str:
        """Return the address of the list that the user came from, if it is an address of this site."""
        back, hosts = request.POST.get("back", ""), {request.get_host()}
        if back.startswith("/") and url_has_allowed_host_and_scheme(back, hosts, require_https=request.is_secure()):
            return back
        return self.url_or_index(request, "schedule")

    def criteria(self, request: HttpRequest, query: ListQuery, alias: str, problems: Problems) -> ScheduleCriteria:
        """Return which schedules a list has for the user."""
        return ScheduleCriteria(
            state=query.state,
            words=query.words,
            task=query.task,
            is_from_code=query.source == CODE if query.source else None,
            unknown_tasks=tuple(sorted(problems.unknown_tasks)),
            # The outcome of a run tells about its job, which a user that sees only some jobs may not see.
            sees_outcomes=self.sees_outcomes(request, alias),
            within=self._within(request, alias),
        )

    def sees_outcomes(self, request: HttpRequest, alias: str) -> bool:
        """Return whether the user may see all jobs: how a run ended tells about its job."""
        return self.visible_ids(request, alias) is None

    def _within(self, request: HttpRequest, alias: str) -> Subquery | None:
        if not self.sees_schedules(request):
            return NO_IDS
        return ids_subquery(self.get_queryset(request), alias)

    def _read(self, request: HttpRequest, query: ListQuery, now: datetime) -> Page:
        alias = databases.selected_alias(request)
        with databases.reading(alias) as session:
            cursor, schema = session
            problems = read_problems(session, sees_outcomes=self.sees_outcomes(request, alias))
            crontab = read_items(
                cursor, now, schema=schema, failing=problems.failing_items, missed=problems.missed_items
            )
            criteria = self.criteria(request, query, alias, problems)
            counts, entries = self._entries(session, criteria, query, crontab)
            ids = [entry.id for entry in entries if entry.id is not None]
            names = [entry.name for entry in entries if entry.id is None]
            found = Schedule.objects.using(alias).defer("payload").in_bulk(ids)
            return Page(
                problems,
                counts,
                entries,
                found,
                crontab,
                runs.runs_of_schedules(cursor, ids, schema=schema, number=SHOWN_RUNS) if ids else {},
                runs.runs_of_crontabs(cursor, names, schema=schema, number=SHOWN_RUNS) if names else {},
                self.sees_schedules(request) and ids_subquery(self.get_queryset(request), alias) is None,
            )

    def _entries(
        self, session: Session, criteria: ScheduleCriteria, query: ListQuery, crontab: Crontab
    ) -> tuple[dict[ScheduleState, int], list[Entry]]:
        cursor, schema = session
        matching = [item for item in crontab.items.values() if item.matches(query)]
        items = [item.listed(query.sort) for item in matching if item.is_in(query.state)]
        entries, numbers = listing.page(
            cursor, criteria, items, schema=schema, order=query.sort, limit=PAGE_SIZE, offset=query.offset
        )
        counts = {state: number + sum(item.is_in(state) for item in matching) for state, number in numbers.items()}
        return counts, entries

    def _tasks(self, page: Page, query: ListQuery) -> list[str]:
        """Return the tasks of the filter. A user that sees only some schedules gets the tasks of the code only."""
        found = {item.item.task for item in page.crontab.items.values()}
        if page.sees_all:
            found |= page.problems.tasks
        return sorted({*found, *([query.task] if query.task else [])})[:MOST_TASKS]

    def _rows(self, request: HttpRequest, page: Page, now: datetime) -> list[Row]:
        visible = self.visible_among(request, page.job_ids)
        linked = visible & page.told_job_ids
        maker = RowMaker(self, request, page.problems, now)

        def job_url(job_id: int) -> str:
            return self.url(request, "job", "change", job_id) if job_id in linked else ""

        def strip(found: list[Run]) -> Any:
            return make_strip([run for run in found if run.job_id is None or run.job_id in visible], job_url, now)

        rows = []
        for entry in page.entries:
            schedule = page.schedules.get(entry.id or 0)
            item: CodeItem | None = page.crontab.items.get(entry.name) if entry.id is None else None
            if schedule is not None:
                rows.append(maker.of_schedule(schedule, strip(page.runs[schedule.pk]), is_failing=entry.is_failing))
            elif item is not None:
                rows.append(maker.of_item(item, strip(page.item_runs[item.name])))
        return rows

    def _headers(self, request: HttpRequest, query: ListQuery) -> list[dict[str, str]]:
        columns = [("name", _("Schedule")), ("", _("When")), ("next", _("Next times")), ("last", _("Last runs"))]
        return [self._header(request, query, name, label) for name, label in columns]

    def _header(self, request: HttpRequest, query: ListQuery, name: str, label: str) -> dict[str, str]:
        if not name:
            return {"label": label}
        is_current = query.sort.removeprefix("-") == name
        is_descending = query.sort.startswith("-")
        following = f"-{name}" if is_current and not is_descending else name
        direction = "descending" if is_descending else "ascending"
        url = self.list_url(request, **query.parameters(sort=following))
        return {"label": label, "url": url, "direction": direction if is_current else ""}

    def _paging(self, request: HttpRequest, query: ListQuery, total: int) -> dict[str, str]:
        last = max((total + PAGE_SIZE - 1) // PAGE_SIZE, 1)

        def url(page: int) -> str:
            return self.list_url(request, **query.parameters(page=str(page) if page > 1 else ""))

        values = {"page": formatting.number(query.page), "pages": formatting.number(last)}
        return {
            "first_url": url(1) if query.page > 1 else "",
            "previous_url": url(min(query.page - 1, last)) if query.page > 1 else "",
            "next_url": url(query.page + 1) if query.page < last else "",
            "place": _("Page %(page)s of %(pages)s") % values if last > 1 else "",
        }


def _removed_items(crontab: Crontab) -> list[dict[str, Any]]:
    """Return the items that workers have scheduled and that are no longer in the crontab of this site."""
    return [
        {
            "name": name,
            "known_since": formatting.relative_time(each.known_since),
            "last_run": _("paused") if each.is_paused else formatting.relative_time(each.last_execution),
        }
        for name, each in crontab.others.items()
    ]
