"""The figures and plots of the pages are those of the recorded benchmarks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.__main__ import NAMES
from benchmarks.report import blocks, svg
from benchmarks.report.figures import Figures
from benchmarks.report.plots import PLOTS, data_of, drawn
from tests.docs.pages import CHECKOUT, DOCS, page

STALE = "Run `make figures`, which writes tables and plots from benchmarks/results/published.json."
PLOT_FOLDER = DOCS / "_static" / "benchmarks"


@cache
def figures() -> Figures:
    return Figures(results.read(results.PUBLISHED))


def _pages() -> list[Path]:
    return [path for path in blocks.PAGES if "<!-- figures:" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", _pages(), ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_page__has_the_figures_of_the_recorded_benchmarks(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == blocks.filled(text, figures()), STALE


@pytest.mark.parametrize("path", _pages(), ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_page__has_no_text_behind_a_comment_that_begins_a_line(path: Path) -> None:
    """Markdown takes such a line for HTML."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("<!--") and not line.endswith("-->")] == []
    assert [line for line in lines if line.startswith("<!-- figures:") and line.count("<!--") > 1] == []


def test_pages__use_every_block() -> None:
    used = {name for path in _pages() for _, name, _, _ in blocks.BLOCK.findall(path.read_text(encoding="utf-8"))}
    assert used == set(blocks.BLOCKS)


@pytest.mark.parametrize("name", list(PLOTS))
def test_plot__belongs_to_the_recorded_benchmarks(name: str) -> None:
    text = (PLOT_FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert svg.digest_in(text) == svg.digest(data_of(name, figures())), STALE


@pytest.mark.parametrize("name", list(PLOTS))
def test_plot__is_what_its_data_give(name: str) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib belongs to the bench group")
    text = (PLOT_FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    if svg.version_in(text) != matplotlib.__version__:
        pytest.skip(f"the plot was drawn by matplotlib {svg.version_in(text)}")
    assert text == drawn(name, figures()), STALE


def test_plots__are_all_on_a_page() -> None:
    shown = {name for path in _pages() for name in re.findall(r"_static/benchmarks/([a-z-]+)\.svg", path.read_text())}
    assert shown == set(PLOTS)
    assert {path.stem for path in PLOT_FOLDER.glob("*.svg")} == set(PLOTS)


def test_page_on_benchmarks__names_folders_that_exist() -> None:
    folders = re.findall(r"`(benchmarks/[a-z_/.]+)`", page("explanation/benchmarks.md"))
    assert len(folders) > 6
    assert [folder for folder in folders if not (CHECKOUT / folder).exists()] == []


def test_benchmarks_that_pages_mention__exist() -> None:
    texts = [path.read_text(encoding="utf-8") for path in blocks.PAGES]
    named = {name for text in texts for name in re.findall(r"python -m benchmarks ([a-z_]+)", text)}
    assert named
    assert named <= set(NAMES)
