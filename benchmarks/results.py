"""The recorded results: every sample of every table, with the machine that it was measured on, as JSON."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
PUBLISHED = Path(__file__).with_name("results") / "published.json"


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity: its key in the samples, and how its figures are shown."""

    key: str
    unit: str
    digits: int = 0

    def shown(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


@dataclass(slots=True)
class Row:
    """The samples of one candidate, by the key of the metric, in the order in which they were measured."""

    key: str
    label: str
    samples: dict[str, list[float]] = field(default_factory=dict)
    # The options that the candidate ran with.
    settings: dict[str, Any] = field(default_factory=dict)

    def add(self, figures: dict[str, float]) -> None:
        for key, value in figures.items():
            self.samples.setdefault(key, []).append(value)

    def median(self, metric: str) -> float:
        return statistics.median(self.samples[metric])


@dataclass(slots=True)
class Table:
    """What one part of a benchmark measured."""

    key: str
    title: str
    metrics: list[Metric]
    rows: list[Row]
    # The key of the row that the other rows are compared with, by the first metric.
    baseline: str = ""
    notes: list[str] = field(default_factory=list)
    # The load average of the last minute when the table was complete, the benchmark's own work included.
    load: float = 0.0

    def row(self, key: str) -> Row:
        return next(row for row in self.rows if row.key == key)

    def best(self) -> Row:
        """Return the row with the highest median of the first metric."""
        return max(self.rows, key=lambda row: row.median(self.metrics[0].key))


@dataclass(slots=True)
class Measured:
    """The record of one benchmark."""

    name: str
    measured_at: str
    seconds: float
    options: dict[str, Any]
    machine: dict[str, Any]
    load: dict[str, float]
    # Why the figures are not final; empty if they are.
    preliminary: list[str]
    tables: list[Table]

    def table(self, key: str) -> Table:
        return next(table for table in self.tables if table.key == key)


def read(path: Path) -> dict[str, Measured]:
    """Return the benchmarks of a file by their names; none if the file does not exist."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["format"] != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT}, got {content['format']}. Run the benchmarks again.")
    return {name: _measured(name, values) for name, values in content["measures"].items()}


def write(path: Path, measured: dict[str, Measured]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"format": FORMAT, "measures": {name: _plain(measured[name]) for name in sorted(measured)}}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def merge(path: Path, more: Measured) -> None:
    """Add a benchmark to a file, and replace its predecessor."""
    write(path, read(path) | {more.name: more})


def _plain(measured: Measured) -> dict[str, Any]:
    values = asdict(measured)
    del values["name"]
    for row in (row for table in values["tables"] for row in table["rows"]):
        row["samples"] = {key: [float(f"{value:.6g}") for value in found] for key, found in row["samples"].items()}
    return values


def _measured(name: str, values: dict[str, Any]) -> Measured:
    tables = [
        Table(
            **(table | {"metrics": [Metric(**m) for m in table["metrics"]], "rows": [Row(**r) for r in table["rows"]]})
        )
        for table in values["tables"]
    ]
    return Measured(**(values | {"name": name, "tables": tables}))
