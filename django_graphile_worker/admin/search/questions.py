"""What the page offers if nothing has a name: close names, and for a word searches in keys, errors and payloads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from django.utils.translation import gettext as _

from django_graphile_worker.admin.search.expressions import Either, Every, Node, replaced
from django_graphile_worker.admin.search.job_search import SearchQuery
from django_graphile_worker.admin.search.name_lookup import DatabaseNames
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.sql.inspection.job_search.criteria import like_pattern
from django_graphile_worker.text import close_matches

MOST_CLOSE = 5
# Each takes up to a tenth of a second where there are thousands of names, which anybody who adds jobs can make.
MAX_QUESTIONS = 5


@dataclass(frozen=True, slots=True)
class Offer:
    """A search that may be meant: the text of its link, and the text of the search."""

    text: str
    query: str


@dataclass(frozen=True, slots=True)
class Question:
    """A word that is part of no name, or a name that no task or queue has, and what may be meant by it."""

    word: str
    close: list[Offer]
    offers: list[Offer]
    # "task" or "queue" if the search says so.
    kind: str = ""


def questions(query: SearchQuery, names: DatabaseNames) -> list[Question]:
    """Return a question for each of the first unknown words, and tasks and queues that do not exist."""
    unknown = chain(
        (_question(query, word, names) for word in query.unknown_words),
        (_question_of_name(query, term, names) for term in _unknown_names(query.expression.root, names)),
    )
    return list(islice(unknown, MAX_QUESTIONS))


def _unknown_names(node: Node | None, names: DatabaseNames) -> Iterator[SearchTerm]:
    """Yield the terms that name a task or a queue that does not exist, or that the user may not know of."""
    if isinstance(node, Every | Either):
        for operand in node.operands:
            yield from _unknown_names(operand, names)
    elif isinstance(node, SearchTerm) and node.name in ("task", "queue") and "*" not in node.value:
        known = names.tasks if node.name == "task" else names.queues
        is_known = node.value in known
        if not is_known and names.within is None:
            # The known names are only some, if there are very many.
            is_known = bool(names.match(node.name, [like_pattern(node.value)]).names)
        if not is_known:
            yield node


def _question_of_name(query: SearchQuery, term: SearchTerm, names: DatabaseNames) -> Question:
    known = names.tasks if term.name == "task" else names.queues
    close = [SearchTerm(term.name, name) for name in close_names(term.value, known)[:MOST_CLOSE]]
    offers = [Offer(str(each), str(replaced(query.expression.root, term, each))) for each in close]
    return Question(term.value, offers, [], term.name)


def _question(query: SearchQuery, word: str, names: DatabaseNames) -> Question:
    def instead(term: SearchTerm) -> str:
        return str(replaced(query.expression.root, SearchTerm("", word), term))

    kinds = (("task", names.tasks), ("queue", names.queues), ("flag", names.flags if names.within is None else ()))
    close = [SearchTerm(kind, name) for kind, known in kinds for name in close_names(word, known)]
    offers = [Offer(_("Search all job keys"), instead(SearchTerm("key", f"*{word}*")))] if "*" not in word else []
    if names.sees_payloads:
        offers += [
            Offer(_("Search error texts"), instead(SearchTerm("error", word))),
            Offer(_("Search payloads"), instead(SearchTerm("payload", word))),
        ]
    return Question(word, [Offer(str(term), instead(term)) for term in close[:MOST_CLOSE]], offers)


def close_names(word: str, names: Iterable[str]) -> list[str]:
    """Return the names that are similar to a word, or that have a similar part."""
    by_part: dict[str, list[str]] = {}
    for name in names:
        for part in {name.lower(), *re.split(r"[^a-z0-9]+", name.lower())} - {""}:
            by_part.setdefault(part, []).append(name)
    parts = close_matches(word.lower(), by_part, number=3, cutoff=0.7)
    return list(dict.fromkeys(name for part in parts for name in by_part[part][:MOST_CLOSE]))
