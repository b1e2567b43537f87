"""The terms of a search, such as `task:send_email`, and their text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _

from django_graphile_worker.text import closest

LONGEST_QUERY = 2_000
MOST_TERMS = 30

TOKEN = re.compile(r'(?:(?P<name>[a-z_]+(?:\.[^\s:"]+)?):)?(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S+))')
# The states of jobs that a worker has yet to run.
WAITING_STATES = "ready,limited,waiting"
# The conditions of a search for jobs. ``payload.`` is followed by a path.
NAMES = (
    "id", "key", "task", "label", "queue", "flag", "state", "priority", "attempts", "exception", "error", "payload",
    "worker", "limit", "created", "due",
)  # fmt: skip
OPERATORS = ("AND", "OR", "NOT")


class SearchTerm(NamedTuple):
    """A condition of a search, such as `task:send_email`; without a name, a word. Callers unpack it."""

    name: str
    value: str

    def __str__(self) -> str:
        is_plain = self.value and not re.search(r'[\s"\\()]', self.value)
        if is_plain and not self.name:
            is_plain = _is_plain_word(self.value)
        value = self.value if is_plain else '"' + re.sub(r'(["\\])', r"\\\1", self.value) + '"'
        return f"{self.name}:{value}" if self.name else value


def _is_plain_word(word: str) -> bool:
    """Return whether a word without quotes is read as the same word."""
    name, separator, _ = word.partition(":")
    is_term = bool(separator) and re.fullmatch(r"[a-z_]+(?:\.[^\s:\"]+)?", name) and is_condition(name, NAMES)
    is_id = word.isascii() and word.lstrip("#").isdigit()
    return not (is_term or is_id or word.startswith("-") or word in OPERATORS)


def join_terms(terms: Sequence[SearchTerm]) -> str:
    return " ".join(map(str, terms))


def waiting_in_queue(name: str) -> str:
    """Return the search for the jobs of a queue that no worker runs yet: what the pages count of a queue."""
    return join_terms([SearchTerm("queue", name), SearchTerm("state", WAITING_STATES)])


def exceeded_limits(text: str, number: int) -> Iterator[str]:
    """Yield a mistake for each exceeded limit: a search without its last words finds more jobs than the user wants."""
    if len(text) > LONGEST_QUERY:
        yield _("expected at most %(most)s characters, got %(got)s") % {"most": LONGEST_QUERY, "got": len(text)}
    if number > MOST_TERMS:
        yield _("expected at most %(most)s conditions, got %(got)s") % {"most": MOST_TERMS, "got": number}


def is_condition(name: str, known: Sequence[str]) -> bool:
    """Return whether the text before a colon is the name of a condition, also if it is mistyped.

    If not, the colon is part of a word, such as the job key ``order:4711``.
    """
    return closest(name.partition(".")[0], known, cutoff=0.75) is not None
