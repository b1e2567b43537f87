"""Parses the search box of the jobs: `task:send_email -queue:eu (flag:slow OR attempts:>3)` becomes criteria."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from django.utils.translation import gettext as _

from django_graphile_worker.admin.search.expressions import (
    Either,
    Every,
    Expression,
    Node,
    Not,
    either,
    every,
    parse_expression,
)
from django_graphile_worker.admin.search.name_lookup import NameLookup, WordMatches
from django_graphile_worker.admin.search.search_criteria import ANY_OF, NOTHING, criteria_of
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria
from django_graphile_worker.sql.inspection.job_search.walk_choice import intersection

EVERYTHING = Criteria()
NO_NAMES = NameLookup()
# Each word is looked for among all names.
MOST_WORDS = 8
BOUNDS = frozenset({"priority", "attempts", "run_at", "created_at"})
CHOICES = frozenset({"ids", "keys", "tasks", "queues", "workers", "error_names", "states"})


@dataclass(frozen=True, slots=True)
class Chip:
    """A part of the search that a click removes: its text, and the text of the search without it."""

    text: str
    rest: str
    is_alternative: bool = False


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A parsed search: its criteria, its parts, and the mistakes in the rest of the text."""

    expression: Expression
    criteria: Criteria = EVERYTHING
    chips: tuple[Chip, ...] = ()
    mistakes: tuple[str, ...] = ()
    # The words that are part of no name.
    unknown_words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return _text(self.expression.root, self.expression.excess)

    def without_states(self) -> str:
        """Return the text without the conditions on the state, for a link to another state."""
        others = [node for node in self.expression.conjuncts if not _is_state(node)]
        return _text(every(others), self.expression.excess)


def parse_search(text: str, names: NameLookup = NO_NAMES) -> SearchQuery:
    """Parse the text of the search box. Report what cannot be parsed as mistakes, and use the rest."""
    expression = parse_expression(text)
    builder = _Builder(names)
    root = builder.valid(expression.root)
    criteria = builder.criteria(root) if root is not None else EVERYTHING
    return SearchQuery(
        expression=expression,
        criteria=criteria,
        chips=_chips(expression, builder),
        mistakes=(*expression.mistakes, *builder.mistakes.values()),
        unknown_words=tuple(builder.unknown_words),
    )


def _text(root: Node | None, excess: Sequence[str]) -> str:
    is_open = isinstance(root, Either) and excess
    return " ".join([*([f"({root})" if is_open else str(root)] if root is not None else []), *excess])


def _is_state(node: Node) -> bool:
    operand = node.operand if isinstance(node, Not) else node
    return isinstance(operand, SearchTerm) and operand.name == "state"


def _chips(expression: Expression, builder: _Builder) -> tuple[Chip, ...]:
    """Return the valid parts of the search. Parts with mistakes stay in the text without a part."""
    root = expression.root
    is_either = isinstance(root, Either)
    join: Callable[[list[Node]], Node | None] = either if is_either else every
    nodes = root.operands if isinstance(root, Either) else expression.conjuncts
    return tuple(
        Chip(str(node), _text(join([*nodes[:place], *nodes[place + 1 :]]), expression.excess), is_either)
        for place, node in enumerate(nodes)
        if builder.valid(node) is not None
    )


class _Builder:
    """The criteria of an expression. Terms that are invalid are collected as mistakes, by their text."""

    def __init__(self, names: NameLookup) -> None:
        self.names = names
        self.mistakes: dict[str, str] = {}
        self.unknown_words: dict[str, None] = {}
        self.words: dict[str, WordMatches] = {}
        self.of_terms: dict[SearchTerm, Criteria | None] = {}

    def valid(self, node: Node | None) -> Node | None:
        """Return the node without the parts that have mistakes; None if nothing remains."""
        if isinstance(node, SearchTerm):
            return node if self._term(node) is not None else None
        if isinstance(node, Not):
            operand = self.valid(node.operand)
            self._check_negated(node)
            return node if operand == node.operand else None
        if isinstance(node, Every):
            return every([each for each in map(self.valid, node.operands) if each is not None])
        if isinstance(node, Either):
            # An alternative without one of its conditions would match more jobs.
            return either([each for each in node.operands if self.valid(each) == each])
        return None

    def _check_negated(self, node: Not) -> None:
        """Report a word that is part of no name: without it, an action would change more jobs than the user means."""
        if isinstance(node.operand, SearchTerm) and node.operand.value in self.unknown_words:
            message = _("%(term)s: no task, queue, key or flag has this word in its name") % {"term": node}
            self.mistakes[str(node)] = message

    def _term(self, term: SearchTerm) -> Criteria | None:
        if term not in self.of_terms:
            try:
                self.of_terms[term] = self._criteria_of([term])
            except ValueError as error:
                self.mistakes[str(term)] = f"{term}: {error}"
                self.of_terms[term] = None
        return self.of_terms[term]

    def criteria(self, node: Node) -> Criteria:
        """Return the criteria of a node without mistakes."""
        if isinstance(node, SearchTerm):
            return self._term(node) or NOTHING
        if isinstance(node, Not):
            return _negated(self.criteria(node.operand))
        if isinstance(node, Either):
            return _either([self.criteria(each) for each in node.operands])
        terms = [each for each in node.operands if isinstance(each, SearchTerm)]
        by_name: dict[object, list[SearchTerm]] = {}
        for place, term in enumerate(terms):
            by_name.setdefault(term.name if term.name in ANY_OF else place, []).append(term)
        parts = [self._criteria_of(each) if len(each) > 1 else self.criteria(each[0]) for each in by_name.values()]
        parts += [self.criteria(each) for each in node.operands if not isinstance(each, SearchTerm)]
        return _all(parts)

    def _criteria_of(self, terms: list[SearchTerm]) -> Criteria:
        """Return the criteria of terms that have the same name."""
        if terms[0].name:
            return criteria_of(terms[0].name, [term.value for term in terms], self.names)
        return self._word(terms[0].value)

    def _word(self, word: str) -> Criteria:
        if not word:
            raise ValueError(_("expected a value"))
        if word not in self.words:
            if len(self.words) == MOST_WORDS:
                raise ValueError(_("expected at most %(most)s words without a condition") % {"most": MOST_WORDS})
            # Checks the wildcards.
            criteria_of("flag", [word], self.names)
            self.words[word] = self.names.word(word)
        matches = self.words[word]
        if not matches:
            self.unknown_words[word] = None
            return NOTHING
        return _either(_members(matches))


def _members(matches: WordMatches) -> list[Criteria]:
    members = (
        Criteria(tasks=matches.tasks),
        Criteria(queues=matches.queues),
        Criteria(keys=matches.keys),
        *(Criteria(flags=(flag,)) for flag in matches.flags),
    )
    return [member for member in members if member != EVERYTHING]


def _set_fields(criteria: Criteria) -> dict[str, Any]:
    return {
        field.name: getattr(criteria, field.name)
        for field in fields(Criteria)
        if getattr(criteria, field.name) != getattr(EVERYTHING, field.name)
    }


def _all(parts: Sequence[Criteria]) -> Criteria:
    """Return the criteria of jobs that meet all parts."""
    result = EVERYTHING
    for part in parts:
        for name, value in _set_fields(part).items():
            before = getattr(result, name)
            if before == getattr(EVERYTHING, name):
                merged = value
            elif name in BOUNDS:
                merged = intersection(before, value)
            elif name in CHOICES:
                merged = tuple(each for each in before if each in value)
                if not merged:
                    return NOTHING
            else:
                merged = (*before, *value)
            result = replace(result, **{name: merged})
    return result


def _either(members: Sequence[Criteria]) -> Criteria:
    """Return the criteria of jobs that meet at least one member. Names of one kind become one member."""
    merged: list[Criteria] = []
    by_kind: dict[str, list[Any]] = {}
    for member in members:
        (kind, value), *others = _set_fields(member).items() or [("", ())]
        if kind in CHOICES and not others:
            by_kind.setdefault(kind, []).extend(value)
        else:
            merged.append(member)
    choices: list[Any] = [{kind: tuple(dict.fromkeys(values))} for kind, values in by_kind.items()]
    merged = [*(Criteria(**each) for each in choices), *merged]
    return merged[0] if len(merged) == 1 else Criteria(any_of=(tuple(merged),))


def _negated(criteria: Criteria) -> Criteria:
    given = _set_fields(criteria)
    if given.keys() == {"tasks"}:
        return Criteria(excluded_tasks=criteria.tasks)
    return Criteria(none_of=(criteria,))
