"""The generated parts of pages."""

from __future__ import annotations

import pytest

from benchmarks.report import blocks
from benchmarks.report.figures import Figures


def test_filled__replaces_paragraphs_and_parts_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(blocks.BLOCKS, "summary", lambda figures: "| new |")
    page = (
        "A\n\n<!-- figures:summary -->\n\nold\n\n<!-- /figures -->\n\nB: <!-- figures:summary -->old<!-- /figures -->."
    )
    expected = page.replace("\n\nold\n\n", "\n\n| new |\n\n").replace("old", "| new |")
    assert blocks.filled(page, Figures({})) == expected
    assert blocks.filled(expected, Figures({})) == expected


def test_filled__rejects_an_unknown_name() -> None:
    with pytest.raises(KeyError):
        blocks.filled("<!-- figures:unknown --><!-- /figures -->", Figures({}))


@pytest.mark.parametrize("name", list(blocks.BLOCKS))
def test_blocks__can_be_written_before_anything_was_measured(name: str) -> None:
    assert isinstance(blocks.BLOCKS[name](Figures({})), str)
