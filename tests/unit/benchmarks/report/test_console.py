"""The text of a table for a terminal."""

from __future__ import annotations

import pytest

from benchmarks.report.console import text_of
from benchmarks.results import Metric, Row, Table


def table(load: float = 0.1) -> Table:
    rows = [Row("ours", "ours", {"rate": [1000.0, 3000.0, 2000.0]}), Row("other", "other", {"rate": [500.0]})]
    return Table("drain", "Jobs", [Metric("rate", "jobs/s"), Metric("cpu", "µs")], rows, baseline="ours", load=load)


def test_text_of__has_median_range_and_ratio() -> None:
    text = text_of(table())
    assert "2,000 jobs/s (1,000 to 3,000)" in text
    assert "500 jobs/s   0.25 of ours" in text


@pytest.mark.parametrize(("load", "is_warning"), [(0.5, False), (0.51, True)])
def test_text_of__has_the_load_average_and_a_warning_above_a_half(load: float, is_warning: bool) -> None:
    text = text_of(table(load))
    assert f"load average {load:.2f}" in text
    assert ("warning" in text) is is_warning
