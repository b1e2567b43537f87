"""A progress bar belongs on a terminal; elsewhere nothing is written."""

from __future__ import annotations

import sys

import pytest

from benchmarks import progress


def test_steps__write_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.steps("drain", 2) as step:
        step("one")
    assert capsys.readouterr() == ("", "")


def test_steps__draw_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich", reason="rich belongs to the bench group, which is not installed")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress.steps("drain", 2) as step:
        step("the first round")
        step("the second round")
    output = capsys.readouterr()
    assert "the second round" in output.err
    assert output.out == ""
