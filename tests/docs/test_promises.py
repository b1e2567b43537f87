"""The page on promises names tests that exist."""

from __future__ import annotations

import re

from tests.docs.pages import CHECKOUT, code_words, page


def test_every_test_on_the_page_exists() -> None:
    named = {word for word in code_words(page("explanation/promises.md")) if word.startswith("test_")}
    sources = "".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^ *(?:async )?def (test_\w+)", sources, flags=re.MULTILINE))
    assert len(named) > 80
    assert sorted(named - defined) == []
