"""The style sheets use tokens: variables of the package that have a value in every theme of the admin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import django_graphile_worker

FOLDER = Path(django_graphile_worker.__file__).parent / "static" / "graphile_worker"
SHEETS = sorted(FOLDER.rglob("*.css"))

COLOUR_FUNCTIONS = r"(?:rgba?|hsla?|hwb|lab|lch|oklab|oklch|color|color-mix|light-dark)\("
NAMED_COLOURS = {
    "black", "white", "red", "green", "blue", "gray", "grey", "silver", "orange", "yellow", "purple", "navy", "teal",
    "maroon", "olive", "lime", "aqua", "fuchsia", "pink", "brown", "gold",
}  # fmt: skip


def declarations(text: str) -> Iterator[tuple[str, str]]:
    """Yield each property with its value. Comments and strings are left out."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'"[^"]*"', '""', text)
    for block in re.findall(r"\{([^{}]*)\}", text):
        for declaration in block.split(";"):
            name, colon, value = declaration.partition(":")
            if colon:
                yield name.strip(), value.strip()


def is_token(name: str) -> bool:
    return name.startswith("--gw-")


def mistakes(text: str, defined: set[str]) -> list[str]:
    """Return the declarations that depend on a theme: a variable without fallback, or a colour outside a token."""
    return [f"{name}: {value}" for name, value in declarations(text) if _is_mistake(name, value, defined)]


def _is_mistake(name: str, value: str, defined: set[str]) -> bool:
    variables = re.findall(r"var\(\s*(--[\w-]+)\s*(,)?", value)
    unknown = any(is_token(variable) and variable not in defined for variable, _ in variables)
    foreign = [has_fallback for variable, has_fallback in variables if not is_token(variable)]
    if is_token(name):
        return unknown or not all(foreign)
    return unknown or bool(foreign) or _has_colour(value)


def _has_colour(value: str) -> bool:
    if re.search(r"#[0-9a-f]{3,8}\b", value, re.I) or re.search(COLOUR_FUNCTIONS, value, re.I):
        return True
    return any(word in NAMED_COLOURS for word in re.findall(r"(?<![\w-])[a-z]+(?![\w-])", value.lower()))


def defined_tokens() -> set[str]:
    return {name for sheet in SHEETS for name, _ in declarations(sheet.read_text()) if is_token(name)}


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_style_sheet__takes_colours_and_variables_of_themes_from_tokens_only(sheet: Path) -> None:
    assert mistakes(sheet.read_text(), defined_tokens()) == []


@pytest.mark.parametrize(
    "rule",
    [
        "a { color: var(--body-fg); }",
        "a { color: var(--body-fg, inherit); }",
        ":root { --gw-text: var(--body-fg); }",
        ":root { --gw-text: var(--body-fg, light-dark(var(--other), white)); }",
        "a { color: #fff; }",
        "a { border: 1px solid rgb(0 0 0 / .1); }",
        "@media print { a { color: black; } }",
        "a { color: var(--gw-unknown); }",
    ],
)
def test_rule_that_depends_on_a_theme__is_found(rule: str) -> None:
    assert len(mistakes(rule, {"--gw-text"})) == 1


def test_tokens__are_all_used() -> None:
    """A token that no rule uses would be offered to projects in vain."""
    used = {token for sheet in SHEETS for token in re.findall(r"var\((--gw-[\w-]+)", sheet.read_text())}
    assert sorted(defined_tokens() - used) == []


def test_style_sheets__follow_the_scheme_of_the_page_and_not_of_the_machine() -> None:
    """A light theme on a dark machine would get light text on a light page."""
    for sheet in SHEETS:
        assert "prefers-color-scheme" not in sheet.read_text(), sheet.name
