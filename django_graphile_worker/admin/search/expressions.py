"""Parses the text of the search box into an expression: terms that are joined by AND, OR, NOT and parentheses.

``NOT`` binds more closely than ``AND``, which may be left out, and ``AND`` more closely than ``OR``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _

from django_graphile_worker.admin.search.search_query import (
    LONGEST_QUERY,
    MOST_TERMS,
    NAMES,
    OPERATORS,
    TOKEN,
    SearchTerm,
    exceeded_limits,
    is_condition,
)

DEEPEST = 10


@dataclass(frozen=True, slots=True)
class Not:
    """The jobs that do not meet the operand."""

    operand: Node

    def __str__(self) -> str:
        return f"-{self.operand}" if isinstance(self.operand, SearchTerm) else f"-({self.operand})"


@dataclass(frozen=True, slots=True)
class Every:
    """The jobs that meet all operands."""

    operands: tuple[Node, ...]

    def __str__(self) -> str:
        return " ".join(f"({each})" if isinstance(each, Either) else str(each) for each in self.operands)


@dataclass(frozen=True, slots=True)
class Either:
    """The jobs that meet at least one operand."""

    operands: tuple[Node, ...]

    def __str__(self) -> str:
        return " OR ".join(map(str, self.operands))


Node = SearchTerm | Not | Every | Either


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed text. Without a root, it has no conditions."""

    root: Node | None
    mistakes: tuple[str, ...] = ()
    # The words beyond the limit on conditions.
    excess: tuple[str, ...] = ()

    @property
    def conjuncts(self) -> tuple[Node, ...]:
        """The conditions that a job must all meet."""
        if self.root is None:
            return ()
        return self.root.operands if isinstance(self.root, Every) else (self.root,)


def parse_expression(text: str) -> Expression:
    """Parse the text. What cannot be parsed is a mistake, and is left out."""
    tokens = list(_tokens(text[:LONGEST_QUERY].replace("\x00", "")))
    places = [place for place, token in enumerate(tokens) if isinstance(token, SearchTerm)]
    cut = places[MOST_TERMS] if len(places) > MOST_TERMS else len(tokens)
    parser = _Parser(tokens[:cut])
    root = parser.parse()
    excess = tuple(str(token) for token in tokens[cut:] if isinstance(token, SearchTerm))
    return Expression(root, (*exceeded_limits(text, len(places)), *dict.fromkeys(parser.mistakes)), excess)


def every(nodes: list[Node]) -> Node | None:
    """Return the nodes as one that all must meet; nested nodes of the same kind become one."""
    flat = [each for node in nodes for each in (node.operands if isinstance(node, Every) else (node,))]
    return Every(tuple(flat)) if len(flat) > 1 else flat[0] if flat else None


def either(nodes: list[Node]) -> Node | None:
    """Return the nodes as one of which at least one must be met."""
    flat = [each for node in nodes for each in (node.operands if isinstance(node, Either) else (node,))]
    return Either(tuple(flat)) if len(flat) > 1 else flat[0] if flat else None


def replaced(node: Node | None, old: SearchTerm, new: SearchTerm) -> Node | None:
    """Return the node with another term in the place of each occurrence of a term."""
    if isinstance(node, Not):
        operand = replaced(node.operand, old, new)
        return None if operand is None else Not(operand)
    if isinstance(node, Every | Either):
        nodes = [each for each in (replaced(each, old, new) for each in node.operands) if each is not None]
        return every(nodes) if isinstance(node, Every) else either(nodes)
    return new if node == old else node


def _tokens(text: str) -> Iterator[SearchTerm | str]:
    """Yield terms, the operators AND, OR and NOT, and parentheses."""
    place = depth = 0
    while place < len(text):
        character = text[place]
        if character.isspace():
            place += 1
        elif character == "(":
            depth, place = depth + 1, place + 1
            yield "("
        elif character == ")" and depth:
            depth, place = depth - 1, place + 1
            yield ")"
        elif character == "-" and re.match(r"-+[^\s-]", text[place:]):
            place += 1
            yield "NOT"
        else:
            found = TOKEN.match(text, place)
            if found is None:
                return
            plain = _without_closing(found["plain"] or "", depth)
            place = found.end() - len(found["plain"] or "") + len(plain)
            yield plain if plain in OPERATORS and not found["name"] else _term(found, plain)


def _without_closing(word: str, depth: int) -> str:
    """Return a word without the parentheses at its end that close others than its own."""
    while depth and word.endswith(")") and word.count(")") > word.count("("):
        word, depth = word[:-1], depth - 1
    return word


def _term(found: re.Match[str], plain: str) -> SearchTerm:
    name, quoted = found["name"], found["quoted"]
    value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
    if name and is_condition(name, NAMES):
        return SearchTerm(name, value)
    if name:
        return SearchTerm("", f"{name}:{value}")
    if quoted is None and re.fullmatch(r"#?[0-9]+", value, re.ASCII):
        return SearchTerm("id", value.lstrip("#"))
    if quoted is None and value.endswith(":") and value[:-1] in NAMES:
        return SearchTerm(value[:-1], "")
    return SearchTerm("", value)


class _Parser:
    """A recursive descent parser. Each method parses from the current token on, and may return nothing."""

    def __init__(self, tokens: list[SearchTerm | str]) -> None:
        self.tokens = tokens
        self.place = 0
        self.depth = 0
        self.mistakes: list[str] = []

    def parse(self) -> Node | None:
        return self._either()

    def _next(self) -> SearchTerm | str | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def _either(self) -> Node | None:
        nodes = [self._every()]
        while self._next() == "OR":
            self.place += 1
            nodes.append(self._every())
        found = [node for node in nodes if node is not None]
        if len(nodes) > 1 and len(found) < len(nodes):
            self.mistakes.append(_("OR: expected a condition before it and after it"))
        return either(found)

    def _every(self) -> Node | None:
        nodes: list[Node] = []
        while (token := self._next()) is not None and token not in ("OR", ")"):
            if token == "AND":
                self.place += 1
            elif (node := self._negated()) is not None:
                nodes.append(node)
        return every(nodes)

    def _negated(self) -> Node | None:
        negations = 0
        while self._next() == "NOT":
            self.place, negations = self.place + 1, negations + 1
        node = self._primary()
        if node is None and negations:
            self.mistakes.append(_("NOT: expected a condition after it"))
        return Not(node) if node is not None and negations % 2 else node

    def _primary(self) -> Node | None:
        token = self._next()
        if token is None or token in ("OR", "AND", ")"):
            return None
        self.place += 1
        return self._group() if token == "(" else token if isinstance(token, SearchTerm) else None

    def _group(self) -> Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            self.mistakes.append(_("expected at most %(most)s parentheses inside each other") % {"most": DEEPEST})
            self.place = len(self.tokens)
            return None
        node = self._either()
        if self._next() == ")":
            self.place += 1
        elif self.depth <= DEEPEST:
            self.mistakes.append(_("expected a closing parenthesis"))
        if node is None:
            self.mistakes.append(_("expected a condition between the parentheses"))
        self.depth -= 1
        return node
