"""Links between the Markdown files of the repository lead to files that exist; Sphinx checks those inside docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT, DOCS

LINK = re.compile(r"\]\(<?([^)\s>]+)")
REPOSITORY = "https://github.com/django-graphile-worker/django-graphile-worker/blob/main/"
PAGES = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / ".github").rglob("*.md"), *DOCS.rglob("*.md")])
PAGES = [path for path in PAGES if "_build" not in path.parts]


def _targets(path: Path) -> list[Path]:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in LINK.findall(text)]
    own = [CHECKOUT / target.removeprefix(REPOSITORY) for target in targets if target.startswith(REPOSITORY)]
    return own + [path.parent / target for target in targets if target and "://" not in target]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_page__links_to_files_that_exist(path: Path) -> None:
    assert [target for target in _targets(path) if not target.exists()] == []
