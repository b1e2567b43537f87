"""The tables that compare two measurements."""

from __future__ import annotations

from benchmarks.report import comparison
from benchmarks.report.figures import Figures
from benchmarks.results import Measured, Row, Table


def test_held_snapshot__has_a_line_for_each_metric_and_the_longest_wait() -> None:
    before, held = Row("before", "no snapshot"), Row("held", "a snapshot")
    before.add({"rate": 40_000, "p50": 3.5, "p90": 4, "p99": 5, "earlier": 0.01})
    for wait in (1.0, 3.0, 1.5):
        held.add({"rate": 32_000, "p50": 3.6, "p90": 5, "p99": 11, "earlier": wait})
    text = comparison.held_snapshot(Figures({"held_snapshot": measured(before, held)}))
    assert "| jobs a second | 40,000 | 32,000 |" in text
    assert "| from `add_job` to the start of the task, median | 3.5 ms | 3.6 ms |" in text
    assert "| until a job starts whose time is a minute ago | 0.01 s | 1.5 s |" in text
    assert text.endswith("The longest time of the last line was 3 s.")


def measured(*rows: Row) -> Measured:
    table = Table("held_snapshot", "", [], list(rows))
    return Measured(
        name="held_snapshot",
        measured_at="2026-01-01T00:00:00",
        seconds=1.0,
        options={},
        machine={},
        load={},
        preliminary=[],
        tables=[table],
    )
