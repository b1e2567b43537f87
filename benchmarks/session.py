"""A run of one benchmark: its options, its progress bar, and the tables that it prints and records."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks import machine
from benchmarks.results import Row, Table

Figures = dict[str, float]
Candidate = Callable[[], Figures]
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity: its key in the figures, and how it is shown."""

    key: str
    unit: str
    digits: int = 0

    def shown(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


@dataclass(frozen=True, slots=True)
class Samples:
    """The figures of one candidate, by the key of the metric, in the order in which they were measured."""

    of: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figures: Figures) -> None:
        for key, value in figures.items():
            self.of.setdefault(key, []).append(value)

    def medians(self, metrics: Sequence[Metric]) -> Figures:
        """Return the medians with six digits, which is more than is known."""
        found = {metric.key: self.of[metric.key] for metric in metrics if metric.key in self.of}
        return {key: float(f"{statistics.median(values):.6g}") for key, values in found.items()}


class Session:
    """The options of the command line, and everything that was measured so far."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name = name
        self.options = options
        self.tables: list[Table] = []

    @property
    def is_quick(self) -> bool:
        return bool(self.options.quick)

    @property
    def rounds(self) -> int:
        return int(self.options.rounds or (1 if self.is_quick else 3))

    def amount(self, usual: int, quick: int) -> int:
        """Return a number of jobs, calls or rows: that of the quick mode if it is on."""
        return quick if self.is_quick else usual

    def interleave(
        self, title: str, candidates: Mapping[str, Candidate], rounds: int | None = None, warm_up: bool = False
    ) -> dict[str, Samples]:
        """Measure every candidate once in each round, so that a slow moment of the machine affects all of them.

        With ``warm_up`` a round before the first fills caches and is not counted.
        """
        samples = {label: Samples() for label in candidates}
        counted = rounds or self.rounds
        with self.steps(title, (counted + warm_up) * len(candidates)) as step:
            for number in range(counted + warm_up):
                for label, candidate in candidates.items():
                    step(f"{label}, round {number + 1 - warm_up}")
                    figures = candidate()
                    if number or not warm_up:
                        samples[label].add(figures)
        return samples

    def search(self, key: str, title: str, metric: Metric, cells: Mapping[str, Candidate]) -> str:
        """Measure each cell of a grid of settings once, record all of them, and return the label of the best."""
        table = self.add(key, title, [metric], self.interleave(title, cells, rounds=1))
        best = table.best(metric.key).label
        print(f"  best: {best}\n", flush=True)
        return best

    def add(
        self,
        key: str,
        title: str,
        metrics: Sequence[Metric],
        samples: Mapping[str, Samples],
        *,
        baseline: str = "",
        settings: Mapping[str, dict[str, Any]] | None = None,
    ) -> Table:
        """Record the medians and print them with their ranges; ratios are to the label ``baseline``."""
        options = settings or {}
        rows = [Row(label, found.medians(metrics), options.get(label, {})) for label, found in samples.items()]
        table = Table(key, title, rows)
        self.tables.append(table)
        print(_text(table, metrics, samples, baseline), flush=True)
        return table

    @contextmanager
    def steps(self, title: str, total: int) -> Iterator[Step]:
        """Yield a function that is called before each of ``total`` steps, with its name, for a bar on a terminal."""
        title = f"{self.name}: {title}"
        if not sys.stderr.isatty():
            yield lambda name: None
            return
        try:
            # Late import: only a terminal needs the package, which is optional.
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            yield lambda name: print(f"{title}: {name}", file=sys.stderr, flush=True)
            return
        columns = (TextColumn("{task.description:<48}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda name: bar.update(task, description=f"{title}: {name}", advance=1)


def _text(table: Table, metrics: Sequence[Metric], samples: Mapping[str, Samples], baseline: str) -> str:
    """Return the rows with median and range of each metric, their ratio to the baseline, and the load average."""
    labels = [f"{row.label} ({row.options})" if row.settings else row.label for row in table.rows]
    width = max([28, *map(len, labels)])
    base = next((row for row in table.rows if row.label == baseline), None)
    lines = [table.title]
    for row, label in zip(table.rows, labels, strict=True):
        parts = [_figure(row, metric, samples[row.label]) for metric in metrics if metric.key in row.figures]
        if base is not None and row is not base:
            first = metrics[0].key
            parts.append(f"{row.figures[first] / base.figures[first]:.2f} of {baseline}")
        lines.append(f"  {label:{width}} {'   '.join(parts)}")
    load = machine.load_average()
    warning = ": warning: above 0.5, of which the benchmark itself is a part" if load > machine.MAX_LOAD else ""
    return "\n".join([*lines, f"  load average {load:.2f}{warning}\n"])


def _figure(row: Row, metric: Metric, samples: Samples) -> str:
    values = samples.of[metric.key]
    text = f"{metric.shown(row.figures[metric.key]):>9} {metric.unit}"
    return f"{text} ({metric.shown(min(values))} to {metric.shown(max(values))})" if len(values) > 1 else text
