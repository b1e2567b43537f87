"""The search box: text to expressions, and back."""

from __future__ import annotations

import random

import pytest

from django_graphile_worker.admin.search.expressions import (
    DEEPEST,
    Either,
    Every,
    Node,
    Not,
    either,
    every,
    parse_expression,
    replaced,
)
from django_graphile_worker.admin.search.search_query import NAMES, SearchTerm

A, B, C = (SearchTerm("task", name) for name in "abc")


def root(text: str) -> Node | None:
    expression = parse_expression(text)
    assert not expression.mistakes, text
    return expression.root


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("   ", None),
        ("task:a", A),
        ("task:a task:b", Every((A, B))),
        ("task:a AND task:b", Every((A, B))),
        ("task:a OR task:b", Either((A, B))),
        ("task:a task:b OR task:c", Either((Every((A, B)), C))),
        ("task:a (task:b OR task:c)", Every((A, Either((B, C))))),
        ("(task:a task:b) task:c", Every((A, B, C))),
        ("(task:a OR task:b) OR task:c", Either((A, B, C))),
        ("-task:a", Not(A)),
        ("NOT task:a", Not(A)),
        ("NOT NOT task:a", A),
        ("--task:a", A),
        ("-(task:a OR task:b) task:c", Every((Not(Either((A, B))), C))),
        ("#95", SearchTerm("id", "95")),
        ("95", SearchTerm("id", "95")),
        ('"95"', SearchTerm("", "95")),
        ("-#95", Not(SearchTerm("id", "95"))),
        ("or and not", Every((SearchTerm("", "or"), SearchTerm("", "and"), SearchTerm("", "not")))),
        ('"OR"', SearchTerm("", "OR")),
        ("priority:-5..5", SearchTerm("priority", "-5..5")),
        ("key:-x", SearchTerm("key", "-x")),
        ("error:f(x)", SearchTerm("error", "f(x)")),
        ("(error:f(x) OR task:a)", Either((SearchTerm("error", "f(x)"), A))),
        ("order:4711", SearchTerm("", "order:4711")),
        ('"task:a"', SearchTerm("", "task:a")),
        ("payload.user.id:5", SearchTerm("payload.user.id", "5")),
        ("task:", SearchTerm("task", "")),
        (")", SearchTerm("", ")")),
        ("-", SearchTerm("", "-")),
    ],
)
def test_text__becomes_an_expression(text: str, expected: Node | None) -> None:
    assert root(text) == expected


@pytest.mark.parametrize(
    "text",
    ["task:a OR", "OR task:a", "task:a OR OR task:b", "NOT", "()", "(task:a", "task:a ()", "(" * 500, "(" * 11 + "a"],
)
def test_mistake__is_reported_and_the_rest_is_kept(text: str) -> None:
    expression = parse_expression(text)
    assert expression.mistakes
    assert len(expression.mistakes) < 5
    if "task:a" in text:
        assert str(A) in str(expression.root)


WORDS = ["plain", "with space", 'quo"te', "back\\slash", "a:b", "task:x", "ünï", "'", "*", "-x", "#5", "95", "OR", "(",
         ")", "f(x)", "a)", "--", "\n", "\u2003", "tusk:a", "\\", '"', "payload.a:b"]  # fmt: skip


def _random_node(chance: random.Random, depth: int) -> Node:
    kind = chance.choice("tttnae") if depth else "t"
    if kind == "n":
        operand = _random_node(chance, depth - 1)
        return operand.operand if isinstance(operand, Not) else Not(operand)
    if kind in "ae":
        nodes = [_random_node(chance, depth - 1) for _ in range(chance.randint(2, 3))]
        return (every if kind == "a" else either)(nodes) or A
    name = chance.choice(["", *NAMES, "payload.x.y"])
    return SearchTerm(name, chance.choice(WORDS))


def test_expressions__survive_formatting_and_parsing() -> None:
    chance = random.Random(11)
    for _ in range(600):
        node = _random_node(chance, 3)
        if isinstance(node, SearchTerm) and not node.name and node.value.isspace():
            continue
        parsed = parse_expression(str(node))
        if len(parsed.excess) == 0 and not parsed.mistakes:
            assert parsed.root == node, str(node)
        assert str(parse_expression(str(parsed.root)).root) == str(parsed.root)


def test_any_text__is_parsed_and_stays_the_same_when_it_is_written_again() -> None:
    chance = random.Random(5)
    pieces = ["(", ")", "-", " ", "OR", "AND", "NOT", '"', "\\", "task:", "a", "#5", ":", "*", "\x00", "error:f(", "ß"]
    for _ in range(1_500):
        text = "".join(chance.choice(pieces) for _ in range(chance.randint(0, 25)))
        expression = parse_expression(text)
        if expression.root is not None:
            again = parse_expression(str(expression.root))
            assert again.root == expression.root, (text, str(expression.root))
            assert not again.mistakes, (text, str(expression.root))


def test_limits__are_reported() -> None:
    assert parse_expression("a " * 31).excess == ("a",)
    assert "30 conditions" in parse_expression("a " * 31).mistakes[0]
    assert "2000 characters" in parse_expression("k" * 2_001).mistakes[0]
    deep = "(" * DEEPEST + "task:a" + ")" * DEEPEST
    assert root(deep) == A


def test_replaced__changes_each_occurrence() -> None:
    node = root("x -x (x OR task:a)")
    changed = replaced(node, SearchTerm("", "x"), SearchTerm("error", "x"))
    assert str(changed) == "error:x -error:x (error:x OR task:a)"
