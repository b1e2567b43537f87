"""The list of jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases, error_summary, formatting
from django_graphile_worker.admin import search as chips
from django_graphile_worker.admin.jobs import pagination
from django_graphile_worker.admin.jobs.actions import ACTIONS
from django_graphile_worker.admin.jobs.states import flags_of, hint_of, name_of
from django_graphile_worker.admin.pages import Page, page
from django_graphile_worker.sql.inspection import names, search
from django_graphile_worker.sql.inspection.counts import Count, count_states
from django_graphile_worker.sql.inspection.criteria import Criteria, State

PAGE_SIZE = 50
# On a tab "1,000+" will do.
MOST_COUNTED = 1_000
TABS = (State.ANY, State.READY, State.SCHEDULED, State.RUNNING, State.RETRYING, State.FAILED)
# Fields of the filter form, and the chips that they become.
FILTERS = {"task": "task", "queue": "queue", "flag": "flag", "priority": "priority", "created": "created"}


@dataclass(frozen=True, slots=True)
class Line:
    """A job's line in the list."""

    id: int
    url: str
    task: str
    task_url: str
    state: State
    state_name: str
    queue: str | None
    queue_url: str
    priority: int
    attempts: str
    when: SafeString | str
    key: str | None
    flags: list[str]
    error: error_summary.Summary


class ListingPage(Page):
    """Tabs by state, a search box with chips, pages that all cost the same."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "add_job")

    def has_reschedule_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, "reschedule_job")

    def has_complete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, "complete_job")

    def has_view_payload_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, "view_payload")

    def read_query(self, request: HttpRequest, session: databases.Session, text: str) -> chips.Query:
        """What the search box asks for."""
        cursor, schema = session
        within = self.within(request, databases.alias_of(request))

        @cache
        def meaning(word: str) -> chips.Meaning:
            known = chips.Meaning(*names.meaning(cursor, word, schema=schema))
            if known.is_key and within is not None:
                # That somebody else's job has this key is none of the user's business.
                mine = search.find(cursor, Criteria(keys=(word,), within=within), schema=schema, limit=1)
                return known._replace(is_key=bool(mine.ids))
            return known

        return chips.read(
            text,
            sees_payloads=self.has_view_payload_permission(request),
            known_tasks=names.known_tasks(cursor, schema=schema) if "*" in text else (),
            meaning=meaning,
        )

    def state_asked(self, value: str | None, criteria: Criteria) -> State:
        """The state of the tab; an error's name is only looked for among jobs that failed."""
        known = value in State._value2member_map_
        state = State(value) if known and value else State.ANY
        if criteria.error_names and state not in (State.RETRYING, State.FAILED):
            return State.FAILING
        return state

    @page
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        if redirect := self._filtered(request):
            return redirect
        alias = databases.alias_of(request)
        with databases.reading(alias) as session:
            cursor, schema = session
            asked = request.GET.get("q", "")
            query = self.read_query(request, session, asked)
            # A mistake stays in the box to be mended, and with the list, whose actions it stops.
            text = asked if query.mistakes else str(query)
            state = self.state_asked(request.GET.get("state"), query.criteria)
            criteria = replace(query.criteria, state=state, within=self.within(request, alias))
            counts = count_states(cursor, criteria, schema=schema, most=MOST_COUNTED)
            places = {name: request.GET.get(name) for name in ("after", "before")}
            leaf = pagination.turn(session, criteria, limit=PAGE_SIZE, **places)
            rows = search.rows(cursor, leaf.ids, schema=schema)
            known_tasks = names.known_tasks(cursor, schema=schema)
        sees = self.has_view_payload_permission(request)
        context = {
            "subtitle": hint_of(state),
            "tabs": self._tabs(request, text, state, counts),
            "state": state.value,
            "query": text,
            "chips": self._chips(request, query, state),
            "mistakes": query.mistakes,
            "lines": [self._line(request, row, sees) for row in rows],
            "known_tasks": known_tasks,
            "next_url": self._address(request, text, state, after=leaf.after) if leaf.after else "",
            "previous_url": self._address(request, text, state, before=leaf.before) if leaf.before else "",
            "first_url": self._address(request, text, state) if any(places.values()) else "",
            "examined": leaf.examined and f"{leaf.examined:,}",
            "actions": [each for each in ACTIONS.values() if each.is_allowed(self, request)],
            "act_url": self.url(request, "job", "act"),
            "add_url": self.url(request, "job", "add") if self.has_add_permission(request) else "",
            "may_take_all": not query.mistakes and (bool(leaf.after or leaf.before) or len(rows) > 1),
            "total": formatting.count(counts.get(state)),
        }
        return self.render(request, "jobs.html", context)

    def _filtered(self, request: HttpRequest) -> HttpResponse | None:
        """The filter form says in fields what the search box says in chips."""
        given = {name: request.GET.get(f"filter_{name}", "").strip() for name in FILTERS}
        if not any(given.values()):
            return None
        added = [chips.SearchTerm(FILTERS[name], value.replace("\x00", "")) for name, value in given.items() if value]
        text = f"{request.GET.get('q', '')} {chips.join(added)}".strip()
        return HttpResponseRedirect(self.url(request, "job", q=text, state=request.GET.get("state")))

    def _address(self, request: HttpRequest, query: str, state: State, **more: Any) -> str:
        shown = None if state in (State.ANY, State.FAILING) else state.value
        return self.url(request, "job", q=query, state=shown, **more)

    def _tabs(
        self, request: HttpRequest, query: str, current: State, counts: dict[State, Count]
    ) -> list[dict[str, Any]]:
        shown = State.ANY if current is State.FAILING else current
        return [
            {
                "name": name_of(state),
                "url": self._address(request, query, state),
                "count": formatting.count(counts.get(state)),
                "is_current": state is shown,
                "state": state.value,
            }
            for state in TABS
        ]

    def _chips(self, request: HttpRequest, query: chips.Query, state: State) -> list[dict[str, str]]:
        """Each chip with the address of the same list without it; mistakes stay until somebody mends them."""

        def without(chip: chips.SearchTerm) -> str:
            others = [str(other) for other in query.chips if other is not chip]
            return self._address(request, " ".join([*others, *query.unread]), state)

        return [{"text": str(chip), "url": without(chip)} for chip in query.chips]

    def _line(self, request: HttpRequest, row: search.JobRow, sees_payloads: bool) -> Line:
        state = row.state
        return Line(
            id=row.id,
            url=self.url(request, "job", "change", quote(str(row.id))),
            task=row.task_identifier or _("unknown task"),
            task_url=self.url(request, "job", q=str(chips.SearchTerm("task", row.task_identifier or "?"))),
            state=state,
            state_name=name_of(state),
            queue=row.queue_name,
            queue_url=self.url(request, "job", q=str(chips.SearchTerm("queue", row.queue_name or "?"))),
            priority=row.priority,
            attempts=f"{row.attempts_made}/{row.max_attempts}",
            when=formatting.moment(row.moment),
            key=row.key,
            flags=flags_of(row.flags_text),
            error=error_summary.summary(row.error, sees_payloads=sees_payloads),
        )
