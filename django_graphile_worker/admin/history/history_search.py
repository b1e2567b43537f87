"""Parses the search box of the history: `task:send_email outcome:failed 4711` becomes terms and criteria."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext as _

from django_graphile_worker.admin.search.search_criteria import job_id, time_range, unknown_name
from django_graphile_worker.admin.search.search_query import (
    LONGEST_QUERY,
    MOST_TERMS,
    TOKEN,
    SearchTerm,
    exceeded_limits,
    is_condition,
)
from django_graphile_worker.sql.inspection.past_attempts import HistoryCriteria
from django_graphile_worker.sql.results import HistoryOutcome

NO_CRITERIA = HistoryCriteria()


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A parsed search: its terms, their criteria, and the mistakes in the rest of the text."""

    terms: tuple[SearchTerm, ...] = ()
    criteria: HistoryCriteria = NO_CRITERIA
    mistakes: tuple[str, ...] = ()


def parse_history_search(text: str, *, sees_payloads: bool) -> HistoryQuery:
    """Parse the text of the search box. Report what cannot be parsed as mistakes, and use the rest."""
    words = list(TOKEN.finditer(text[:LONGEST_QUERY].replace("\x00", "")))
    criteria = replace(NO_CRITERIA, searches_payloads=sees_payloads)
    query = HistoryQuery(criteria=criteria, mistakes=tuple(exceeded_limits(text, len(words))))
    for word in words[:MOST_TERMS]:
        term = _term(word)
        try:
            criteria = _add_term(query.criteria, term, sees_payloads=sees_payloads)
        except ValueError as error:
            query = replace(query, mistakes=(*query.mistakes, f"{word[0]}: {error}"))
        else:
            query = replace(query, terms=(*query.terms, term), criteria=criteria)
    return query


def _term(word: re.Match[str]) -> SearchTerm:
    name, quoted = word["name"], word["quoted"]
    value = word["plain"] if quoted is None else quoted.replace('\\"', '"').replace("\\\\", "\\")
    if name and is_condition(name, [*PARSERS]):
        return SearchTerm(name, value)
    return SearchTerm("", f"{name}:{value}" if name else value)


def _add_term(criteria: HistoryCriteria, term: SearchTerm, *, sees_payloads: bool) -> HistoryCriteria:
    if not term.value:
        raise ValueError(_("expected a value"))
    if not term.name:
        return replace(criteria, anywhere=(*criteria.anywhere, term.value))
    # A user could find out a hidden text by trying texts until one matches.
    if term.name == "error" and not sees_payloads:
        raise ValueError(_("the text of errors is hidden from you"))
    if term.name == "payload" and not sees_payloads:
        raise ValueError(_("payloads are hidden from you"))
    parse = PARSERS.get(term.name)
    if parse is None:
        raise unknown_name([*PARSERS])
    return parse(criteria, term.value)


def of_day(criteria: HistoryCriteria, text: str) -> HistoryCriteria:
    """Return the criteria for the attempts of one day; an invalid day is ignored, as the field offers none."""
    try:
        day = parse_date(text)
    except ValueError:
        day = None
    if day is None or not 1 < day.year < 9999:
        return criteria
    first, last = (timezone.make_aware(datetime.combine(day, moment)) for moment in (time.min, time.max))
    return replace(criteria, ended_at=(first, last))


def _texts(field: str) -> Callable[[HistoryCriteria, str], HistoryCriteria]:
    def parse(criteria: HistoryCriteria, value: str) -> HistoryCriteria:
        changes: dict[str, Any] = {field: (*getattr(criteria, field), value)}
        return replace(criteria, **changes)

    return parse


def _ids(criteria: HistoryCriteria, value: str) -> HistoryCriteria:
    return replace(criteria, ids=(*criteria.ids, *map(job_id, value.split(","))))


def _outcome(criteria: HistoryCriteria, value: str) -> HistoryCriteria:
    names = {each.name.lower(): each for each in HistoryOutcome}
    if value not in names:
        raise ValueError(_("expected one of %(names)s") % {"names": ", ".join(names)})
    return replace(criteria, outcomes=(*criteria.outcomes, int(names[value])))


def _ended(criteria: HistoryCriteria, value: str) -> HistoryCriteria:
    return replace(criteria, ended_at=time_range(value, -1))


PARSERS: dict[str, Callable[[HistoryCriteria, str], HistoryCriteria]] = {
    "id": _ids,
    "key": _texts("keys"),
    "task": _texts("tasks"),
    "queue": _texts("queues"),
    "worker": _texts("workers"),
    "outcome": _outcome,
    "error": _texts("errors"),
    "payload": _texts("payload"),
    "ended": _ended,
}
