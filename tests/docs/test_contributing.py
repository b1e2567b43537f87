"""The page for contributors names files, targets and canaries that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import CHECKOUT, code_words, page

PACKAGE = CHECKOUT / "django_graphile_worker"
PATH = re.compile(r"(?:[a-z_]+/)*(?:[a-z_0-9-]+\.(?:py|md|txt|toml|ini)|[a-z_]+/)|(?:tests|docs)/[a-z_/]+")
ELSEWHERE = {"release.yml"}


def _paths() -> set[str]:
    words = {word for word in code_words(page("contributing.md")) if PATH.fullmatch(word)}
    return words - ELSEWHERE - {".postgres/"}


def test_every_path_on_the_page_exists() -> None:
    paths = _paths()
    assert len(paths) > 30
    assert [path for path in sorted(paths) if not (CHECKOUT / path).exists() and not (PACKAGE / path).exists()] == []


def test_every_target_of_make_on_the_page_exists() -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    called = {
        word
        for line in re.findall(r"\bmake ((?:[A-Za-z=.\"/ -]|\d)+)", "\n".join(code_words(page("contributing.md"))))
        for word in line.split()
        if re.fullmatch(r"[a-z]+", word)
    }
    assert {"test", "tests", "docs", "format"} <= called
    assert called - {"crontab"} <= targets


def _canaries() -> list[tuple[str, str, str]]:
    """The rows of the table: the last part of the interface's name, the module that uses it, the test."""
    section = page("contributing.md").partition("### Private interfaces of others")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (.+?) \| `([^`]+)` \| .+ \| `(\w+)` \|$", section, flags=re.MULTILINE)
    return [(code_words(interface)[0].rpartition(".")[2], module, test) for interface, module, test in rows]


def _sources_of_canaries() -> str:
    paths = sorted((CHECKOUT / "tests").rglob("test_private_interfaces.py"))
    return "\n\n\n".join(path.read_text(encoding="utf-8") for path in paths)


@pytest.mark.parametrize(("interface", "module", "test"), _canaries(), ids=lambda value: str(value))
def test_private_interface__is_used_where_the_page_says_and_has_its_canary(
    interface: str, module: str, test: str
) -> None:
    assert interface in (PACKAGE / module).read_text(encoding="utf-8")
    found = _sources_of_canaries().partition(f"def {test}(")[2].partition("\n\n\n")[0]
    assert interface in found


def test_private_interfaces__are_all_on_the_page() -> None:
    found = re.findall(r"^def (test_\w+)", _sources_of_canaries(), flags=re.MULTILINE)
    assert {test for _, _, test in _canaries()} == set(found)
