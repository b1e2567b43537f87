"""What a run of the benchmarks records can be read again, and a new record replaces the old one of the same name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.results import Measured, Metric, Row, Table


def measured(name: str, *samples: float) -> Measured:
    row = Row("ours", "ours, silent", {"rate": list(samples)}, {"at once": 10})
    table = Table("drain_1", "Jobs", [Metric("rate", "jobs/s", 1)], [row], baseline="ours", notes=["best"], load=0.25)
    return Measured(
        name, "2026-01-02T03:04:05+00:00", 1.5, {"quick": False}, {"cores": 2}, {"before": 0.1}, [], [table]
    )


def test_write__keeps_every_sample(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.json"
    results.write(path, {"drain": measured("drain", 1.0, 3.0, 2.5)})
    assert results.read(path) == {"drain": measured("drain", 1.0, 3.0, 2.5)}


def test_merge__replaces_the_record_of_the_same_name_only(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for each in (measured("drain", 1.0), measured("queues", 2.0), measured("drain", 3.0)):
        results.merge(path, each)
    assert results.read(path) == {"drain": measured("drain", 3.0), "queues": measured("queues", 2.0)}


def test_read__rejects_the_format_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"format": 0, "measures": {}}), encoding="utf-8")
    with pytest.raises(ValueError, match="expected format 1, got 0"):
        results.read(path)


def test_read__returns_nothing_without_a_file(tmp_path: Path) -> None:
    assert results.read(tmp_path / "missing.json") == {}


def test_best__is_the_row_with_the_highest_median_of_the_first_metric() -> None:
    rows = [Row("lucky", "", {"rate": [1.0, 9.0, 1.0]}), Row("steady", "", {"rate": [2.0, 2.0, 2.0]})]
    assert Table("grid", "", [Metric("rate", "jobs/s")], rows).best().key == "steady"
