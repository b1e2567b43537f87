"""The list of jobs: a page of it, how many jobs there are in each state, and its filters.

A list of jobs in a state, of a task or of a queue is read along indexes by ``sql.inspection.job_list``. Everything else
(a search for texts, a filter of the project, another order) is a query of Django's ORM, within the time limit of pages.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from django_graphile_worker import conf, registry
from django_graphile_worker.admin import databases, formatting, list_page
from django_graphile_worker.admin.jobs.search import MAX_SEARCHED, JobSearch, among, both, condition_of
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.admin.search_terms import SearchTerm, join_terms
from django_graphile_worker.admin.visible_jobs import ids_subquery
from django_graphile_worker.models import Job
from django_graphile_worker.sql.inspection import job_detail, job_list
from django_graphile_worker.sql.inspection.job_list import Count, Criteria, State

# A tab shows "1,000+" for more jobs.
MAX_COUNTED = 1_000
TABS = (State.ANY, State.READY, State.LIMITED, State.SCHEDULED, State.RUNNING, State.RETRYING, State.FAILED)
# The states in which the list of an exception is read along an index.
OF_ERRORS = frozenset({State.ANY, State.RETRYING, State.FAILED, State.FAILING})
# How many rows a search reads at a time.
STEP = 2_000
# How many seconds a page searches.
SEARCH_SECONDS = 1.0
# After how many jobs of the list the search continues: "Search further".
CONTINUED = "continued"
# The parameters that are no filters.
NO_FILTERS = list_page.NO_FILTERS | {CONTINUED}


class StateFilter(SimpleListFilter):
    """The tabs of the list."""

    title = gettext_lazy("State")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state_name(state)) for state in State if state is not State.ANY]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Leave the jobs to JobChangeList, which reads them along an index."""


class TaskFilter(list_page.SelectFilter):
    """A task that the database knows."""

    title = gettext_lazy("Task")
    parameter_name = "task"
    not_kept = ("p", CONTINUED)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = model_admin.known_tasks(request)
        given = request.GET.get(self.parameter_name)
        return [(name, name) for name in (names if not given or given in names else [given, *names])]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Leave the jobs to JobChangeList."""


class QueueFilter(SimpleListFilter):
    """A named queue, which the URL of the list names: there may be any number of queues."""

    title = gettext_lazy("Queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        name = request.GET.get(self.parameter_name)
        return [(name, name)] if name else []

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Leave the jobs to JobChangeList."""


@dataclass(frozen=True, slots=True)
class ShownTo:
    """What the columns of a job need to know of the request: the URLs of pages, and whether payloads are shown."""

    jobs_url: str
    # "" if the user may not see the page.
    workers_url: str
    sees_payloads: bool

    def search_url(self, term: SearchTerm) -> str:
        return f"{self.jobs_url}{'&' if '?' in self.jobs_url else '?'}{urlencode({'q': str(term)})}"


class JobChangeList(ChangeList):
    """A page of the list of jobs."""

    # What the search of the page means; set by JobAdmin.get_search_results.
    search: JobSearch
    criteria: Criteria
    model_admin: Any
    counts: Mapping[State, Count]
    # If the search reads the rows of jobs: the jobs without the limit of the search, and the ids of those that match.
    searched: QuerySet[Job]
    matching: list[int]

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """Leave out what is not a filter."""
        found: dict[str, Any] = super().get_filters_params(params)
        return {name: value for name, value in found.items() if name not in NO_FILTERS}

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Job]:
        request.job_search = JobSearch()  # type: ignore[attr-defined]
        # The actions say which list they were chosen in.
        request.job_list = self  # type: ignore[attr-defined]
        found: QuerySet[Job] = super().get_queryset(request, exclude_parameters)
        self.search = request.job_search  # type: ignore[attr-defined]
        self.alias = databases.selected_alias(request)
        self.criteria = self._criteria(request)
        if self.search.errors:
            # Without the condition, the list would have more jobs, and an action would change them.
            self.is_plain, self.continued = False, 0
            return found.none()
        self.is_plain = self._is_plain(found)
        self.continued = self._continued(request)
        found = found.filter(condition_of(self.criteria))
        if not self.is_searched:
            return found
        # An action changes all jobs that match, and another order needs all; a page of the list shows some.
        needs_all = request.method == "POST" or self.params.get("o")
        most = None if needs_all else max(MAX_COUNTED, self.page_num * self.list_per_page) + 1
        self.searched, self.matching = found, self._search(found, most=most)
        return found.filter(among(self.matching))

    def _criteria(self, request: HttpRequest) -> Criteria:
        """Return what the filters and the search say about the state, the task and the queue."""
        if any("\x00" in value for value in request.GET.values()):
            raise IncorrectLookupParameters
        criteria = self.search.criteria
        state = request.GET.get("state", "")
        if state in State._value2member_map_ and State(state) is not State.ANY:
            criteria = replace(criteria, state=State(state))
        task, queue = request.GET.get("task"), request.GET.get("queue")
        filters = Criteria(tasks=(task,) if task else (), queues=(queue,) if queue else ())
        return both(criteria, filters)

    def _is_plain(self, found: QuerySet[Job]) -> bool:
        """Return whether the criteria are all that selects the jobs, in the order of their list."""
        is_unfiltered = found.query.where == self.root_queryset.query.where and not self.search.condition
        is_of_errors = bool(self.criteria.error_names)
        return (
            is_unfiltered
            and not self.params.get("o")
            and not self.model_admin.ordering
            and ids_subquery(self.root_queryset, self.alias) is None
            and (not is_of_errors or self.criteria.state in OF_ERRORS)
        )

    @property
    def is_searched(self) -> bool:
        """Whether the search reads the rows of jobs, up to a limit."""
        return bool(self.search.condition) and not self.search.is_selective and not self.search.errors

    def _continued(self, request: HttpRequest) -> int:
        text = request.GET.get(CONTINUED, "")
        return int(text) if self.is_searched and text.isascii() and text.isdigit() and len(text) < 10 else 0

    def _search(self, jobs: QuerySet[Job], *, most: int | None = None) -> list[int]:
        """Return the ids of the jobs that match, in the order of the list.

        The rows are read by their ids, some at a time: the condition is evaluated for no other job. With ``most``, so
        many are enough, and the search stops after a second, or after 100,000 jobs. Else all jobs are searched, within
        the time of a statement.
        """
        began, longest = monotonic(), conf.current().statement_timeout
        matching: list[int] = []
        with databases.reading(self.alias) as (cursor, schema):
            exact = [] if self.continued else self._jobs_with_key(jobs)
            matching += exact
            ids = self._listed_ids(cursor, schema, None if most is None else MAX_SEARCHED + 1)
            number, end = 0, len(ids) if most is None else min(len(ids), MAX_SEARCHED)
            while number < end:
                part = ids[number : min(number + STEP, end)]
                found = set(jobs.order_by().filter(among(part)).values_list("pk", flat=True))
                matching += [each for each in part if each in found and each not in exact]
                number += len(part)
                seconds = monotonic() - began
                if most is not None and (len(matching) >= most or seconds > SEARCH_SECONDS):
                    break
                if seconds > longest:
                    raise databases.PageTimeoutError("STATEMENT_TIMEOUT")
        self.searched_to = self.continued + number
        self.has_more_to_search = number < len(ids) and (most is None or len(matching) < most)
        return matching

    searched_to = 0
    has_more_to_search = False

    def _listed_ids(self, cursor: Any, schema: str, limit: int | None) -> list[int]:
        """Return the ids of the jobs that are searched. Of all jobs, only those that have failed can have an error."""
        has_error = any(term.name == "error" and not term.is_negative for term in self.search.terms)
        criteria = self.criteria
        if has_error and criteria.state is State.ANY:
            criteria = replace(criteria, state=State.FAILING)
        if limit is None:
            return job_list.all_job_ids(cursor, criteria, schema=schema)
        return job_list.job_ids(cursor, criteria, schema=schema, limit=limit, offset=self.continued)

    def _jobs_with_key(self, jobs: QuerySet[Job]) -> list[int]:
        """Return the jobs whose keys are words of the search: they are found along an index."""
        words = [term.value for term in self.search.terms if not term.name and not term.is_negative]
        return list(jobs.order_by().filter(key__in=words).values_list("pk", flat=True)) if words else []

    def url_for_result(self, result: Any) -> str:
        """Return the page of a job, in the database that is selected."""
        path, mark, query = self.shown_to.jobs_url.partition("?")
        return f"{path}{result.pk}/change/{mark}{query}"

    def get_results(self, request: HttpRequest) -> None:
        """Read a page, and how many jobs there are."""
        size, offset = self.list_per_page, (self.page_num - 1) * self.list_per_page
        if self.page_num < 1 or offset > 10**9:
            raise IncorrectLookupParameters
        if self.is_searched and not self.params.get("o"):
            ids, number = self.matching[offset : offset + size + 1], len(self.matching)
            self.counts = {self.criteria.state: Count(min(number, MAX_COUNTED), is_more=number > MAX_COUNTED)}
        elif not self.is_plain:
            with databases.reading(self.alias, has_fixed_plan=False):
                ids = list(self.queryset.values_list("pk", flat=True)[offset : offset + size + 1])
                number = len(ids) if not offset and len(ids) <= size else self.queryset[: MAX_COUNTED + 1].count()
            self.counts = {self.criteria.state: Count(min(number, MAX_COUNTED), is_more=number > MAX_COUNTED)}
        with databases.reading(self.alias) as (cursor, schema):
            if self.is_plain:
                self.counts = self._counts(cursor, schema)
                ids = job_list.job_ids(cursor, self.criteria, schema=schema, limit=size + 1, offset=offset)
            self.has_next = len(ids) > size
            shown = ids[:size]
            rows = job_list.rows(cursor, shown, schema=schema)
            payloads = (
                job_detail.payload_beginnings(cursor, shown, schema=schema)
                if "payload_text" in self.list_display
                else {}
            )
            jobs = {job.pk: job for job in self.root_queryset.filter(pk__in=shown)}
        self.shown_to = ShownTo(
            self.model_admin.url(request, "job"),
            self.model_admin.url(request, "worker"),
            sees_payloads=self.model_admin.has_view_payload_permission(request),
        )
        self.result_list = []
        for row in rows:
            # A job may have ended since its id was read.
            if job := jobs.get(row.id):
                job.row, job.payload_beginning = row, payloads.get(row.id, "")
                job.shown_to = self.shown_to
                self.result_list.append(job)
        total = self.total
        self.result_count = max(total.number, offset + len(self.result_list))
        self.full_result_count, self.show_full_result_count = None, False
        self.show_admin_actions = True
        self.can_show_all, self.multi_page = False, self.has_next or offset > 0
        self.paginator = Paginator(range(self.result_count), size)

    def _counts(self, cursor: Any, schema: str) -> dict[State, Count]:
        if not self.criteria.error_names:
            return job_list.count_states(cursor, self.criteria, schema=schema, most=MAX_COUNTED)
        state = State.FAILING if self.criteria.state is State.ANY else self.criteria.state
        counted = job_list.count_states(cursor, self.criteria, schema=schema, most=MAX_COUNTED, states=(state,))
        return {self.criteria.state: counted[state]}

    def all_ids(self) -> array[int]:
        """Return the ids of the jobs on all pages, in the order of the list, from one snapshot."""
        if self.is_searched and not self.params.get("o"):
            return array("q", self._search(self.searched))
        if not self.is_plain:
            with databases.reading(self.alias, has_fixed_plan=False):
                return array("q", self.queryset.values_list("pk", flat=True).iterator())
        with databases.reading(self.alias) as (cursor, schema):
            return array("q", job_list.all_job_ids(cursor, self.criteria, schema=schema))

    @property
    def total(self) -> Count:
        """How many jobs the list has on all its pages."""
        if self.criteria.state in self.counts:
            return self.counts[self.criteria.state]
        return Count(
            sum(each.number for each in self.counts.values()),
            is_more=any(each.is_more for each in self.counts.values()),
        )

    def total_text(self) -> str:
        return formatting.count(self.total)

    def tabs(self) -> list[dict[str, Any]]:
        """Return the tabs: each keeps the task, the queue, and the search without its own states."""
        current = State.ANY if self.criteria.state not in TABS else self.criteria.state
        search = self.query if self.search.errors else self.search.without_states()
        return [
            {
                "name": state_name(state),
                "url": self.get_query_string(
                    {"q": search or None, "state": None if state is State.ANY else state.value, CONTINUED: None},
                    remove=["o"],
                ),
                "count": self._tab_count(state),
                "is_current": state is current,
                "state": state.value,
            }
            for state in TABS
            if state is not State.LIMITED or state is current or self._uses_limits
        ]

    def _tab_count(self, state: State) -> str:
        if state is State.ANY:
            return self.total_text() if self.criteria.state is State.ANY else ""
        return formatting.count(self.counts.get(state))

    @property
    def _uses_limits(self) -> bool:
        """Whether the project has limits, or a worker of another project has jobs that wait for its limits."""
        limited = self.counts.get(State.LIMITED)
        return registry.tasks.has_limits or (limited is not None and limited.number > 0)

    def kept_parameters(self) -> list[tuple[str, str]]:
        """Return what the form of the search keeps of the URL."""
        return [(name, value) for name, value in self.params.items() if name not in ("q", CONTINUED)]

    def elsewhere(self) -> list[tuple[int, str, str]]:
        """Return the jobs of a search for ids that are in other states: the id, its state, and the list that has it."""
        texts = [text for term in self.search.terms if term.name == "id" for text in term.value.split(",")]
        ids = [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 19]
        if not ids or self.criteria.state is State.ANY:
            return []
        with databases.reading(self.alias) as (cursor, schema):
            shown = list(self.root_queryset.filter(pk__in=ids[: self.list_per_page]).values_list("pk", flat=True))
            rows = job_list.rows(cursor, shown, schema=schema)
        return [
            (row.id, state_name(row.state), self.get_query_string({"q": f"id:{row.id}"}, remove=["state", CONTINUED]))
            for row in rows
        ]

    def chips(self) -> list[tuple[str, str]]:
        """Return the terms of the search, and the filters that are no tabs, each with the list without it."""
        found = [
            (str(term), self.get_query_string({"q": self.search.without(term) or None, CONTINUED: None}))
            for term in self.search.terms
        ]
        filters = [name for name in ("task", "queue") if self.params.get(name)]
        found += [
            (f"{name}:{self.params[name]}", self.get_query_string({CONTINUED: None}, remove=[name])) for name in filters
        ]
        return found + self.chosen_filters()

    def chosen_filters(self) -> list[tuple[str, str]]:
        """Return the chosen filters of the project, each with the list without it."""
        found = []
        for spec in self.filter_specs:
            names = [name for name in spec.expected_parameters() if name]
            if isinstance(spec, StateFilter | TaskFilter | QueueFilter) or not any(
                self.params.get(each) for each in names
            ):
                continue
            chosen = [str(choice["display"]) for choice in spec.choices(self) if choice["selected"]]
            text = f"{spec.title}: {', '.join(chosen)}" if chosen else str(spec.title)
            found.append((text, self.get_query_string({CONTINUED: None}, remove=names)))
        return found

    def next_url(self) -> str:
        return self.get_query_string({"p": self.page_num + 1}) if self.has_next else ""

    def previous_url(self) -> str:
        return self.get_query_string({"p": self.page_num - 1}) if self.page_num > 1 else ""

    def continue_url(self) -> str:
        """Return the list of what matches further on, if the search has stopped before the end."""
        return self.get_query_string({CONTINUED: self.searched_to}) if self.has_more_to_search else ""

    def searched_text(self) -> str:
        """Return which jobs were searched; "" if all were."""
        if not self.is_searched or not (self.has_more_to_search or self.continued):
            return ""
        last = formatting.number(self.searched_to)
        if not self.continued:
            return _("Only the first %(last)s jobs of the list were searched.") % {"last": last}
        numbers = {"first": formatting.number(self.continued + 1), "last": last}
        return _("Only the jobs %(first)s to %(last)s of the list were searched.") % numbers

    def description(self) -> str:
        """Return what the list has, for the log: "Failed task:send_email"; "" for all jobs."""
        state = "" if self.criteria.state is State.ANY else state_name(self.criteria.state)
        filters = [f"{name}:{self.params[name]}" for name in ("task", "queue") if self.params.get(name)]
        filters += [text for text, _url in self.chosen_filters()]
        return " ".join(filter(None, [state, *filters, join_terms(self.search.terms)])) or pgettext("page", "All")
