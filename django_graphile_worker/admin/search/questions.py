"""What the page offers if a word is part of no name: close names, and searches in keys, errors and payloads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.translation import gettext as _

from django_graphile_worker.admin.search.expressions import replaced
from django_graphile_worker.admin.search.job_search import SearchQuery
from django_graphile_worker.admin.search.name_lookup import DatabaseNames
from django_graphile_worker.admin.search.search_query import SearchTerm

MOST_CLOSE = 5


@dataclass(frozen=True, slots=True)
class Offer:
    """A search that may be meant: the text of its link, and the text of the search."""

    text: str
    query: str


@dataclass(frozen=True, slots=True)
class Question:
    """A word that is part of no name, and what may be meant by it."""

    word: str
    close: list[Offer]
    offers: list[Offer]


def questions(query: SearchQuery, names: DatabaseNames) -> list[Question]:
    """Return a question for each unknown word."""
    return [_question(query, word, names) for word in query.unknown_words]


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
    parts = difflib.get_close_matches(word.lower(), by_part, n=3, cutoff=0.7)
    return list(dict.fromkeys(name for part in parts for name in by_part[part][:MOST_CLOSE]))
