"""The figures of the pages are those of the recorded benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import report, results
from benchmarks.__main__ import NAMES
from tests.docs.pages import CHECKOUT

STALE = "Run `make figures`, which writes the tables from benchmarks/results/published.json."
PAGES = [path for path in report.PAGES if "<!-- figures:" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_page__has_the_figures_of_the_recorded_benchmarks(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == report.filled(text, report.Figures(results.read(results.PUBLISHED))), STALE


def test_pages__use_every_block_and_every_record() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    assert {name for text in texts for _, name, _, _ in report.BLOCK.findall(text)} == set(report.BLOCKS)
    assert set(results.read(results.PUBLISHED)) == set(NAMES)
