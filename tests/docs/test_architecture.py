"""The page on the architecture names every folder of the package, and only folders and modules that exist."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from tests.docs.pages import CHECKOUT, code_words, page

PACKAGE = CHECKOUT / "django_graphile_worker"
NAME = "explanation/architecture.md"
# A folder ends with a slash.
PATH = re.compile(r"[a-z0-9_]+(?:/[a-z0-9_]+)*(?:/|\.py|\.sql)|[a-z_]+(?:/[a-z_]+)+")


def _named() -> list[str]:
    return [word for word in code_words(page(NAME)) if PATH.fullmatch(word)]


def _folders() -> list[str]:
    """Every folder that holds code, as the page writes it."""
    holders = {path.parent for pattern in ("*.py", "*.sql") for path in PACKAGE.rglob(pattern)}
    return sorted(path.relative_to(PACKAGE).as_posix() for path in holders - {PACKAGE})


def _layers(index: int) -> str:
    """The layers of a contract in pyproject.toml, without the parentheses that make a module optional."""
    contracts: list[dict[str, Any]] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    return "".join(re.sub(r"[()]", "", layer) + "\n" for layer in contracts[index]["layers"])


def test_every_path_on_the_page_exists() -> None:
    assert len(_named()) > 40
    missing = [name for name in _named() if not (PACKAGE / name).exists() and not (PACKAGE / f"{name}.py").exists()]
    assert missing == []


@pytest.mark.parametrize("folder", _folders())
def test_every_folder_is_on_the_page(folder: str) -> None:
    headings = re.findall(r"^`([a-z_/]+)`$", page(NAME), flags=re.MULTILINE)
    assert folder in [name.rstrip("/") for name in headings]


def test_every_folder_has_a_module_to_start_with() -> None:
    entries = re.findall(r"^`([a-z_/]+)`\n: (.*?)(?=\n\n)", page(NAME), flags=re.MULTILINE | re.DOTALL)
    without = {"sql/ddl/", "migrations/"}
    assert [folder for folder, text in entries if folder not in without and f"`{folder}" not in text] == []


@pytest.mark.parametrize("index", [0, 1, 2])
def test_layers_are_those_of_the_contract(index: int) -> None:
    assert f"```text\n{_layers(index)}```" in page(NAME)
