"""A plot contains the digest of its data, and follows the colour scheme of the reader."""

from __future__ import annotations

import pytest

from benchmarks.report import svg


def test_digest__depends_on_the_data() -> None:
    assert svg.digest({"a": 1, "b": 2}) == svg.digest({"b": 2, "a": 1})
    assert svg.digest({"a": 1}) != svg.digest({"a": 2})


def test_text_of__has_the_digest_and_both_schemes() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib belongs to the bench group")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(svg.SETTINGS):
        figure = Figure()
        figure.subplots().plot([1, 2])
        text = svg.text_of(figure, {"a": 1}, "A line")
    assert svg.digest_in(text) == svg.digest({"a": 1})
    assert svg.version_in(text) == matplotlib.__version__
    assert "prefers-color-scheme: dark" in text
    assert svg.INK not in text
    assert svg.PAPER not in text
    assert "<dc:date>" not in text
