"""The search of jobs: ``task:send_email -queue:eu attempts:>3`` becomes conditions for the list.

Terms that are next to each other must all be met; of several with the same name, such as ``task:a task:b``, one is
enough where a job has only one. A word without a name finds the jobs whose task, queue or key contains it.

The state, the task, the queue and the exception are read along indexes. All other conditions are applied to the first
``MAX_SEARCHED`` jobs that these leave, as far as a second allows, or to the jobs with an id or a key; the page says
where the search stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

from django.db.models import BooleanField, Case, DateTimeField, F, Field, Func, IntegerField, Q, TextField, Value, When
from django.db.models.functions import Cast, Coalesce, Now
from django.db.models.lookups import Contains, Exact
from django.utils.translation import gettext as _

from django_graphile_worker import conf
from django_graphile_worker.admin import databases, error_summary
from django_graphile_worker.admin.search_terms import (
    MAX_LENGTH,
    MAX_TERMS,
    SearchTerm,
    join_terms,
    parse_terms,
    time_range,
)
from django_graphile_worker.job_options import LARGEST_MAX_ATTEMPTS, LARGEST_PRIORITY, SMALLEST_PRIORITY
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.registry import label_of
from django_graphile_worker.sql.inspection import job_list, known_names
from django_graphile_worker.sql.inspection.job_list import STATES, Criteria, State
from django_graphile_worker.sql.statements import statement
from django_graphile_worker.text import closest

MAX_SEARCHED = 100_000
LARGEST_ID = 2**63 - 1

_RANGE = re.compile(r"(?P<first>-?[0-9]{1,19})?(?P<dots>\.\.)?(?P<last>-?[0-9]{1,19})?", re.ASCII)
_COMPARISON = re.compile(r"(?P<operator>[<>]=?)(?P<number>-?[0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class JobSearch:
    """A parsed search: what the list reads along an index, the condition on its jobs, and the errors in the text."""

    criteria: Criteria = field(default_factory=Criteria)
    condition: Q = field(default_factory=Q)
    terms: tuple[SearchTerm, ...] = ()
    errors: tuple[str, ...] = ()
    # Whether the condition selects few jobs by an index of its own: by an id, a key or a worker.
    is_selective: bool = False

    def without(self, term: SearchTerm) -> str:
        return join_terms([each for each in self.terms if each is not term])

    def without_states(self) -> str:
        return join_terms([each for each in self.terms if each.name != "state"])


# For how many unknown names a search suggests another one: each is compared with all names.
MAX_SUGGESTIONS = 5


class Names:
    """The names that the terms of a search can mean, read from the database when a term needs them."""

    def __init__(
        self, alias: str, *, sees_payloads: bool, is_restricted: bool, search_fields: Sequence[str] = ()
    ) -> None:
        self.alias = alias
        # The fields of the project in which a word is searched, as Django's documentation of search_fields says.
        self.search_fields = search_fields
        self.sees_payloads = sees_payloads
        # The user may see only some jobs: whether there is a task, a queue or a label is not said.
        self.is_restricted = is_restricted
        self.suggestions_left = MAX_SUGGESTIONS

    @cached_property
    def tasks(self) -> list[str]:
        with databases.reading(self.alias) as (cursor, schema):
            return known_names.known_tasks(cursor, schema=schema)

    def closest_task(self, name: str) -> str | None:
        self.suggestions_left -= 1
        return closest(name, self.tasks) if self.suggestions_left >= 0 else None

    def containing(self, kind: str, text: str) -> list[str]:
        look = known_names.tasks_containing if kind == "task" else known_names.queues_containing
        with databases.reading(self.alias) as (cursor, schema):
            return look(cursor, text, schema=schema)

    def error_names(self) -> tuple[str, ...]:
        with databases.reading(self.alias) as (cursor, schema):
            names = known_names.known_error_names(cursor, schema=schema)
        # A name with a hidden value is left out.
        return tuple(name for name in names if self.sees_payloads or redact_text(name) == name)

    def workers_of_host(self, host: str) -> list[str]:
        with databases.reading(self.alias) as (cursor, schema):
            workers = known_names.registered_workers(cursor, schema=schema)
        return [worker for worker, its_host in workers if its_host == host]

    def jobs_of_limit(self, key: str) -> list[int]:
        with databases.reading(self.alias) as (cursor, schema):
            return job_list.jobs_of_limit_key(cursor, key, schema=schema)


def parse_search(text: str, names: Names) -> JobSearch:
    """Parse the text of the search box; an error leaves out its term, and the list then has no jobs."""
    errors = []
    if len(text) > MAX_LENGTH:
        errors.append(_("A search has at most %(most)s characters.") % {"most": MAX_LENGTH})
    terms = tuple(islice(parse_terms(text), MAX_TERMS + 1))
    if len(terms) > MAX_TERMS:
        errors.append(_("A search has at most %(most)s conditions.") % {"most": MAX_TERMS})
        terms = terms[:MAX_TERMS]
    search = JobSearch(terms=terms)
    by_name: dict[tuple[str, bool], list[SearchTerm]] = {}
    for place, term in enumerate(terms):
        is_one_of = term.name in ONE_OF and not term.is_negative
        by_name.setdefault((term.name if is_one_of else f"{place}", term.is_negative), []).append(term)
    for group in by_name.values():
        try:
            search = _with_terms(search, group, names)
        except ValueError as error:
            errors.append(f"{join_terms(group)}: {error}")
    return replace(search, errors=tuple(errors))


def _with_terms(search: JobSearch, group: Sequence[SearchTerm], names: Names) -> JobSearch:
    """Return the search with the terms of a group, of which one must be met."""
    name, values = group[0].name, [term.value for term in group]
    if not all(values):
        raise ValueError(_("A value is missing."))
    _check_allowed(name, values, names)
    if not group[0].is_negative and name in INDEXED:
        criteria = INDEXED[name](values, names)
        if criteria is not None:
            return replace(search, criteria=both(search.criteria, criteria))
    condition = _condition(name, values, names)
    is_selective = search.is_selective or (name in SELECTIVE and not group[0].is_negative)
    return replace(
        search,
        condition=search.condition & (~condition if group[0].is_negative else condition),
        is_selective=is_selective,
    )


def _check_allowed(name: str, values: Sequence[str], names: Names) -> None:
    if names.sees_payloads:
        return
    # A user could find out a hidden text by trying texts until one matches.
    if name == "error" or (name == "exception" and any(redact_text(value) != value for value in values)):
        raise ValueError(_("You may not see the texts of errors. Use exception: to find errors by their names."))
    # The key of a limit contains values of the payload.
    if name in ("payload", "limit") or name.startswith("payload."):
        raise ValueError(_("You may not see payloads."))


def both(first: Criteria, second: Criteria) -> Criteria:
    """Return the criteria of jobs that meet both; a tuple without values in common becomes a name that no job has."""
    merged: dict[str, Any] = {}
    for name in ("tasks", "queues", "error_names"):
        before, after = getattr(first, name), getattr(second, name)
        both = tuple(each for each in before if each in after) if before and after else before or after
        merged[name] = both or (("",) if before and after else ())
    state = second.state if first.state is State.ANY else first.state
    if State.ANY not in (first.state, second.state) and first.state is not second.state:
        raise ValueError(_("A job is in one state only."))
    return Criteria(state=state, **merged)


def _tasks(values: Sequence[str], names: Names) -> Criteria:
    return Criteria(tasks=_named("task", values, names, names.tasks))


def _queues(values: Sequence[str], names: Names) -> Criteria:
    return Criteria(queues=_named("queue", values, names, ()))


def _named(kind: str, values: Sequence[str], names: Names, known: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are meant: a whole name, or all names that contain the text."""
    found: dict[str, None] = {}
    for value in values:
        matches = [value] if value in known else names.containing(kind, value)
        exact = [name for name in matches if name == value]
        found |= dict.fromkeys(exact or matches or [value])
        if not matches and not names.is_restricted:
            raise ValueError(_not_found(kind, value, names))
    return tuple(found)


def _not_found(kind: str, value: str, names: Names) -> str:
    text = _("There is no such task.") if kind == "task" else _("There is no such queue.")
    close = names.closest_task(value) if kind == "task" else None
    return f"{text} {_('Did you mean %(name)s?') % {'name': close}}" if close else text


def _labels(values: Sequence[str], names: Names) -> Criteria:
    tasks = tuple(task for task in names.tasks if label_of(task) in values)
    if not tasks and not names.is_restricted:
        raise ValueError(_("No task has this label."))
    return Criteria(tasks=tasks or ("",))


def _exceptions(values: Sequence[str], names: Names) -> Criteria:
    """Return the criteria of the names of errors: whole names, or, if there is none, the last parts of dotted names."""
    known, found = names.error_names(), []
    for value in values:
        stored = error_summary.stored_names(value)
        whole = [name for name in stored if name in known]
        found += whole or [*stored, *(name for name in known if name.endswith(f".{value}"))]
    return Criteria(error_names=tuple(dict.fromkeys(found)))


def _one_state(values: Sequence[str], names: Names) -> Criteria | None:
    states = _states(values)
    if len(states) == 1:
        return Criteria(state=states[0])
    return Criteria(state=State.WAITING) if set(states) == {State.SCHEDULED, State.RETRYING} else None


def _states(values: Sequence[str]) -> list[State]:
    known = {state.value: (state,) for state in STATES} | {State.WAITING.value: (State.SCHEDULED, State.RETRYING)}
    found: list[State] = []
    for value in ",".join(values).split(","):
        if value not in known:
            raise ValueError(_("The states are %(names)s.") % {"names": ", ".join(known)})
        found += known[value]
    return list(dict.fromkeys(found))


# The conditions that are read along an index. A condition may return None if its values cannot be.
INDEXED: dict[str, Callable[[Sequence[str], Names], Criteria | None]] = {
    "task": _tasks,
    "queue": _queues,
    "label": _labels,
    "exception": _exceptions,
    "state": _one_state,
}
SELECTIVE = frozenset({"id", "key", "worker", "limit"})
# Of several terms with one of these names, a job must meet one: it has only one task.
ONE_OF = frozenset({"id", "key", "task", "label", "queue", "worker", "limit", "exception", "state"})


def _condition(name: str, values: Sequence[str], names: Names) -> Q:
    """Return the condition of the values of a term, of which one must be met."""
    if name.startswith("payload."):
        path = name.split(".")[1:]
        return _any([Q(Exact(_Sql("payload", job_list.VALUE_IN_PAYLOAD, path), Value(value))) for value in values])
    make = CONDITIONS.get(name) if name else _word
    if make is None:
        known = ", ".join(f"{each}:" for each in CONDITIONS)
        raise ValueError(_("The conditions are %(names)s.") % {"names": known})
    return _any([make(value, names) for value in values])


class _Sql(Func):
    """An expression of ``sql.inspection.job_list`` over a column, which it calls COLUMN."""

    def __init__(self, column: str, text: str, *parameters: Any, output_field: Field[Any, Any] | None = None) -> None:
        super().__init__(column, output_field=output_field or TextField())
        self.text, self.parameters = text, parameters

    def as_sql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        column, _parameters = compiler.compile(self.source_expressions[0])
        return statement(self.text, conf.schema_of_models()).replace("COLUMN", column), list(self.parameters)


def among(ids: Sequence[int]) -> Q:
    """Return the condition of the jobs with these ids, of which there may be very many."""
    return Q(_Sql("pk", job_list.IS_AMONG, list(ids), output_field=BooleanField()))


def _flag(value: str) -> Q:
    return Q(_Sql("flags", job_list.HAS_FLAG, value, output_field=BooleanField()))


def _any(conditions: Sequence[Q]) -> Q:
    found = conditions[0]
    for each in conditions[1:]:
        found |= each
    return found


def _word(value: str, names: Names) -> Q:
    """A word is a part of the name of a task, of a queue or of a key, or a flag."""
    found = Q(key__icontains=value) | _flag(value)
    for name in names.search_fields:
        field = name.lstrip("^=")
        lookup = {"^": "istartswith", "=": "iexact"}.get(name[:1], "icontains")
        found |= Q(**{f"{field}__{lookup}": value})
    if tasks := names.containing("task", value):
        found |= Q(task__identifier__in=tasks)
    if queues := names.containing("queue", value):
        found |= Q(job_queue__queue_name__in=queues)
    return found


def _id(value: str, names: Names) -> Q:
    texts = [text.strip().removeprefix("#") for text in value.split(",")]
    if len(texts) > 1:
        return _any([_number("pk", text, 0, LARGEST_ID) for text in texts])
    return _number("pk", texts[0], 0, LARGEST_ID)


def _number(column: str | Any, value: str, smallest: int, largest: int) -> Q:
    """Return the condition of a number, a comparison like ``>3``, or a range like ``2..5``."""
    if compared := _COMPARISON.fullmatch(value):
        lookup = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}[compared["operator"]]
        return _compared(column, lookup, _within(compared["number"], smallest, largest))
    found = _RANGE.fullmatch(value)
    if not found or not (found["first"] or found["last"]) or (found["last"] and not found["dots"]):
        raise ValueError(_("Write a number, a comparison like >3, or a range like 0..10."))
    if not found["dots"]:
        return _compared(column, "exact", _within(found["first"], smallest, largest))
    low = _compared(column, "gte", _within(found["first"], smallest, largest)) if found["first"] else Q()
    return low & _compared(column, "lte", _within(found["last"], smallest, largest)) if found["last"] else low


def _compared(column: str | Any, lookup: str, number: int) -> Q:
    if isinstance(column, str):
        return Q(**{f"{column}__{lookup}": number})
    return Q(column.get_lookup(lookup)(column, number))


# The attempts that were made. In the column, a job without further attempts has used up all of them.
ATTEMPTS_MADE = Case(
    When(attempts__lt=F("max_attempts"), then=F("attempts")),
    default=Coalesce(_Sql("last_error", job_list.ATTEMPTS_IN_ERROR, output_field=IntegerField()), F("attempts")),
    output_field=IntegerField(),
)


def _within(text: str, smallest: int, largest: int) -> int:
    if not smallest <= int(text) <= largest:
        values = {"smallest": smallest, "largest": largest}
        raise ValueError(_("The number is between %(smallest)s and %(largest)s.") % values)
    return int(text)


def _period(column: str, value: str, direction: int) -> Q:
    low, high = time_range(value, direction)
    if low is None and high is None:
        raise ValueError(_("A value is missing."))
    condition = Q(**{f"{column}__gte": low}) if low else Q()
    return condition & Q(**{f"{column}__lte": high}) if high else condition


def _worker(value: str, names: Names) -> Q:
    return Q(locked_at__isnull=False, locked_by__in=[value, *names.workers_of_host(value)])


def _exception(value: str, names: Names) -> Q:
    name = _Sql("last_error", job_list.NAME_OF_ERROR)
    return HAS_FAILED & _any([Q(Exact(name, Value(each))) for each in _exceptions([value], names).error_names])


def _payload(value: str, names: Names) -> Q:
    text = _Sql("payload", job_list.TEXT_OF_PAYLOAD)
    return _any([Q(Contains(text, Value(form))) for form in job_list.written_forms(value)])


HAS_FAILED = Q(locked_at=None, attempts__gt=0)


def in_state(state: State) -> Q:
    """Return the condition of the jobs in a state, as ``job_list.state_of`` says it."""
    parked = Q(run_at=Cast(Value("infinity"), DateTimeField())) & Q(
        _Sql("pk", job_list.IS_PARKED, output_field=BooleanField())
    )
    available = Q(is_available=True)
    waiting = available & Q(run_at__gt=Now()) & ~parked
    return {
        State.READY: available & Q(run_at__lte=Now()),
        State.LIMITED: available & parked,
        State.WAITING: waiting,
        State.SCHEDULED: waiting & Q(attempts=0),
        State.RETRYING: waiting & HAS_FAILED,
        State.RUNNING: Q(locked_at__isnull=False),
        State.FAILED: HAS_FAILED & Q(is_available=False),
        State.FAILING: HAS_FAILED,
        State.ANY: Q(),
    }[state]


def condition_of(criteria: Criteria) -> Q:
    """Return the condition of the jobs that meet the criteria."""
    condition = in_state(criteria.state)
    if criteria.tasks:
        condition &= Q(task__identifier__in=criteria.tasks)
    if criteria.queues:
        condition &= Q(job_queue__queue_name__in=criteria.queues)
    if criteria.error_names:
        name = _Sql("last_error", job_list.NAME_OF_ERROR)
        condition &= HAS_FAILED & _any([Q(Exact(name, Value(each))) for each in criteria.error_names])
    return condition


# By the name of a condition: the condition of one value.
CONDITIONS: dict[str, Callable[[str, Names], Q]] = {
    "id": _id,
    "key": lambda value, names: Q(key=value),
    "task": lambda value, names: Q(task__identifier__in=_tasks([value], names).tasks),
    "label": lambda value, names: Q(task__identifier__in=_labels([value], names).tasks),
    "queue": lambda value, names: Q(job_queue__queue_name__in=_queues([value], names).queues),
    "flag": lambda value, names: _flag(value),
    "state": lambda value, names: _any([in_state(state) for state in _states([value])]),
    "priority": lambda value, names: _number("priority", value, SMALLEST_PRIORITY, LARGEST_PRIORITY),
    "attempts": lambda value, names: _number(ATTEMPTS_MADE, value, 0, LARGEST_MAX_ATTEMPTS),
    "exception": _exception,
    "error": lambda value, names: HAS_FAILED & Q(last_error__icontains=value),
    "payload": _payload,
    "worker": _worker,
    "limit": lambda value, names: Q(pk__in=names.jobs_of_limit(value)),
    "created": lambda value, names: _period("created_at", value, -1),
    "due": lambda value, names: _period("run_at", value, 1),
}
