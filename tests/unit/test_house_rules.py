"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PACKAGE = sorted((CHECKOUT / "django_graphile_worker").rglob("*.py"))
TESTS = sorted((CHECKOUT / "tests").rglob("*.py"))


def _calls(path: Path) -> Iterator[tuple[str, int]]:
    """Every call in a file, as written, and its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def _where(paths: list[Path], *forbidden: str) -> set[str]:
    return {
        f"{path.relative_to(CHECKOUT)}:{line}" for path in paths for name, line in _calls(path) if name in forbidden
    }


def test_tests__wait_for_conditions_and_never_sleep() -> None:
    places = _where(TESTS, "time.sleep", "sleep")
    assert {place.split(":")[0] for place in places} == {"tests/conftest.py"}, places


def test_modules__are_named_after_what_they_hold() -> None:
    vague = {"utils", "util", "helpers", "common", "misc", "base"}
    assert [path for path in PACKAGE if path.stem in vague] == []


def test_settings__are_read_in_one_place() -> None:
    readers = {
        path.name
        for path in PACKAGE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr == "GRAPHILE_WORKER")
        or (isinstance(node, ast.Constant) and node.value == "GRAPHILE_WORKER")
    }
    assert readers == {"conf.py"}
