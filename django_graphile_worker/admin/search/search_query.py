"""Parses the search box: `task:send_email queue:eu "connection reset"` becomes search terms and criteria."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.utils.translation import gettext as _

from django_graphile_worker.admin.search.search_criteria import PARSERS, add_term, limited_to_labels
from django_graphile_worker.sql.inspection.criteria import Criteria
from django_graphile_worker.suggestions import closest

LONGEST_QUERY = 2_000
MOST_TERMS = 30
EVERYTHING = Criteria()

TOKEN = re.compile(r'(?:(?P<name>[a-z_]+(?:\.[^\s:"]+)?):)?(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S+))')


class SearchTerm(NamedTuple):
    """A condition of a search, such as `task:send_email`. Callers unpack it."""

    name: str
    value: str

    def __str__(self) -> str:
        is_plain = self.value and not re.search(r'[\s"\\]', self.value)
        value = self.value if is_plain else '"' + re.sub(r'(["\\])', r"\\\1", self.value) + '"'
        return f"{self.name}:{value}"


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A parsed search: its terms, their criteria, and the mistakes in the rest of the text."""

    terms: tuple[SearchTerm, ...] = ()
    criteria: Criteria = EVERYTHING
    mistakes: tuple[str, ...] = ()
    # The words that are not part of the criteria, as the user wrote them.
    unparsed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return join_terms(self.terms)


@dataclass(frozen=True, slots=True)
class WordMatches:
    """The columns of the database that a word without a name in front of it matches."""

    is_task: bool = False
    is_queue: bool = False
    is_key: bool = False


Lookup = Callable[[str], WordMatches]
NO_MATCHES = WordMatches()


def join_terms(terms: Sequence[SearchTerm]) -> str:
    return " ".join(map(str, terms))


def parse_search(
    text: str,
    *,
    sees_payloads: bool,
    known_tasks: Sequence[str] = (),
    look_up: Lookup = lambda word: NO_MATCHES,
) -> SearchQuery:
    """Parse the text of the search box. Report what cannot be parsed as mistakes, and use the rest."""
    words = list(TOKEN.finditer(text[:LONGEST_QUERY].replace("\x00", "")))
    excess = tuple(word[0] for word in words[MOST_TERMS:])
    query = SearchQuery(mistakes=tuple(exceeded_limits(text, len(words))), unparsed=excess)
    for word in words[:MOST_TERMS]:
        term = _term(word, look_up)
        try:
            criteria = add_term(query.criteria, *term, sees_payloads=sees_payloads, known_tasks=known_tasks)
        except ValueError as error:
            mistakes, unparsed = (*query.mistakes, f"{term}: {error}"), (*query.unparsed, word[0])
            query = replace(query, mistakes=mistakes, unparsed=unparsed)
        else:
            query = replace(query, terms=(*query.terms, term), criteria=criteria)
    labels = [term.value for term in query.terms if term.name == "label"]
    return replace(query, criteria=limited_to_labels(query.criteria, labels, known_tasks))


def exceeded_limits(text: str, number: int) -> Iterator[str]:
    """Yield a mistake for each exceeded limit: a search without its last words finds more jobs than the user wants."""
    if len(text) > LONGEST_QUERY:
        yield _("expected at most %(most)s characters, got %(got)s") % {"most": LONGEST_QUERY, "got": len(text)}
    if number > MOST_TERMS:
        yield _("expected at most %(most)s conditions, got %(got)s") % {"most": MOST_TERMS, "got": number}


def _term(word: re.Match[str], look_up: Lookup) -> SearchTerm:
    name, quoted = word["name"], word["quoted"]
    value = word["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    if name and is_condition(name, [*PARSERS, "payload"]):
        return SearchTerm(name, value)
    return _term_of_bare_word(f"{name}:{value}" if name else value, look_up)


def is_condition(name: str, known: Sequence[str]) -> bool:
    """Return whether the text before a colon is the name of a condition, also if it is mistyped.

    If not, the colon is part of a word, such as the job key ``order:4711``.
    """
    return closest(name.partition(".")[0], known, cutoff=0.75) is not None


def _term_of_bare_word(word: str, look_up: Lookup) -> SearchTerm:
    if word.isascii() and word.isdigit():
        return SearchTerm("id", word)
    matches = look_up(word)
    if matches.is_task or "*" in word:
        return SearchTerm("task", word)
    return SearchTerm("queue" if matches.is_queue else "key" if matches.is_key else "error", word)
