"""The search of the job list: its permissions, its criteria, and what the page shows of it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.cache import patch_cache_control

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search.completion import Completion
from django_graphile_worker.admin.search.job_search import SearchQuery, parse_search
from django_graphile_worker.admin.search.name_lookup import DatabaseNames
from django_graphile_worker.admin.search.questions import Question, questions
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.job_search.walk_choice import has_pattern

# How many jobs in another state are named.
MOST_ELSEWHERE = 5


class JobSearchAdmin(PageAdmin):
    """The search of the job list."""

    def has_view_payload_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "view_payload")

    def names(self, request: HttpRequest, session: databases.Session) -> DatabaseNames:
        """Return the names that the words of the user's searches can mean."""
        return DatabaseNames(
            session,
            sees_payloads=self.has_view_payload_permission(request),
            within=self.visible_ids(request, databases.selected_alias(request)),
        )

    def parse_query(self, request: HttpRequest, session: databases.Session, text: str) -> SearchQuery:
        """Parse the text of the search box."""
        return parse_search(text, self.names(request, session))

    def requested_state(self, value: str | None, criteria: Criteria) -> State:
        """Return the state of the tab, or the state that the search asks for on the tab of all states.

        A search by the name of an error covers only jobs that have failed.
        """
        is_known = value in State._value2member_map_
        state = State(value) if is_known and value else State.ANY
        if state is State.ANY and len(criteria.states) == 1:
            state = criteria.states[0]
        if _is_of_errors(criteria) and state not in (State.RETRYING, State.FAILED):
            return State.FAILING
        return state

    def terms(self, request: HttpRequest, query: SearchQuery, state: State) -> list[dict[str, Any]]:
        """Return each part of the search with the address of the list without it."""
        return [
            {
                "text": chip.text,
                "url": self.search_url(request, chip.rest, state),
                "is_alternative": chip.is_alternative and place > 0,
            }
            for place, chip in enumerate(query.chips)
        ]

    def search_url(self, request: HttpRequest, query: str, state: State, **position: Any) -> str:
        """Return the address of the list of a state."""
        shown = None if state in (State.ANY, State.FAILING) else state.value
        return self.url(request, "job", q=query, state=shown, **position)

    def found_nothing(
        self, request: HttpRequest, session: databases.Session, query: SearchQuery, criteria: Criteria
    ) -> dict[str, Any]:
        """Return what a page without jobs shows: what was looked for, other searches, and jobs in other states."""
        asked = questions(query, self.names(request, session))
        elsewhere = self._elsewhere(request, session, criteria) if criteria.ids else []
        is_of_state = criteria.state not in (State.ANY, State.FAILING)
        has_search = bool(query.expression.root) and not query.unknown_words
        return {
            "questions": [self._question(request, each, criteria.state) for each in asked],
            "elsewhere": elsewhere,
            "all_states_url": self.url(request, "job", q=query.without_states())
            if is_of_state and has_search and not elsewhere
            else "",
            "state_name": state_name(criteria.state),
        }

    def _question(self, request: HttpRequest, question: Question, state: State) -> dict[str, Any]:
        offers = [(offer.text, self.search_url(request, offer.query, state)) for offer in question.offers]
        close = [(offer.text, self.search_url(request, offer.query, State.ANY)) for offer in question.close]
        return {"word": question.word, "offers": offers, "close": close, "kind": question.kind}

    def _elsewhere(self, request: HttpRequest, session: databases.Session, criteria: Criteria) -> list[dict[str, Any]]:
        """Return the jobs with the ids of a search that are in another state than that of the list."""
        anywhere = Criteria(ids=criteria.ids, within=criteria.within)
        found = search.find(session.cursor, anywhere, schema=session.schema, limit=MOST_ELSEWHERE)
        rows = search.rows(session.cursor, found.ids, schema=session.schema)
        return [
            {"id": row.id, "state": state_name(row.state), "url": self.url(request, "job", q=f"id:{row.id}")}
            for row in rows
        ]

    def complete_view(self, request: HttpRequest) -> HttpResponse:
        """Return completions of what a user types, as JSON."""
        self.require(self.has_view_permission(request))
        typed = request.GET.get("typed", "")
        try:
            with databases.reading(databases.selected_alias(request)) as session:
                found = Completion(session, self.names(request, session), state_name).complete(typed)
        except (databases.PageTimeoutError, GraphileWorkerError):
            # Completion is a help, not a need: the search works without it.
            found = []
        response = JsonResponse({"completions": [each.as_dict() for each in found]})
        patch_cache_control(response, private=True, max_age=10)
        return response


def _is_of_errors(criteria: Criteria) -> bool:
    return bool(criteria.error_names) or has_pattern(criteria, "exception")
