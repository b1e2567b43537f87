"""The recorded results: the median of every figure, with the machine that it was measured on, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 2
PUBLISHED = Path(__file__).with_name("results") / "published.json"


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one candidate: the medians, by the keys of the metrics."""

    label: str
    figures: dict[str, float]
    # The options that the candidate ran with.
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> str:
        return options_text(self.settings)


@dataclass(frozen=True, slots=True)
class Table:
    """What one part of a benchmark measured."""

    key: str
    title: str
    rows: list[Row]

    def best(self, metric: str) -> Row:
        """Return the row with the highest figure."""
        return max(self.rows, key=lambda row: row.figures[metric])


@dataclass(frozen=True, slots=True)
class Measured:
    """The record of one benchmark."""

    name: str
    measured_at: str
    rounds: int
    machine: dict[str, Any]
    # The load average before, and the cores that other programs kept busy.
    load: dict[str, float]
    # Why the figures are not final; empty if they are.
    preliminary: list[str]
    tables: list[Table]


def options_text(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def read(path: Path) -> dict[str, Measured]:
    """Return the benchmarks of a file by their names; none if the file does not exist."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["format"] != FORMAT:
        raise ValueError(f"{path} has format {content['format']}, not {FORMAT}. Run the benchmarks again.")
    return {values["name"]: _measured(values) for values in content["measures"]}


def write(path: Path, measured: dict[str, Measured]) -> None:
    """Write a file with a line for each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = ",\n".join(_text(measured[name]) for name in sorted(measured))
    path.write_text(f'{{"format": {FORMAT}, "measures": [\n{records}\n]}}\n', encoding="utf-8")


def merge(path: Path, more: Measured) -> None:
    """Add a benchmark to a file, and replace its predecessor."""
    write(path, read(path) | {more.name: more})


def _measured(values: dict[str, Any]) -> Measured:
    tables = [Table(**(table | {"rows": [Row(**row) for row in table["rows"]]})) for table in values["tables"]]
    return Measured(**(values | {"tables": tables}))


def _text(measured: Measured) -> str:
    values = asdict(measured)
    tables = ",\n".join(_opened(table, "rows", ",\n".join(map(_row, table["rows"]))) for table in values["tables"])
    return _opened(values, "tables", tables)


def _opened(values: dict[str, Any], last: str, content: str) -> str:
    """Return an object whose last member, a list, has lines of its own."""
    head = _line({name: value for name, value in values.items() if name != last})
    return f'{head[:-1]}, "{last}": [\n{content}\n]}}'


def _row(values: dict[str, Any]) -> str:
    return _line(values if values["settings"] else {"label": values["label"], "figures": values["figures"]})


def _line(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False)
