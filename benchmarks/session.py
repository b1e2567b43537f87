"""A run of one benchmark: its options, its progress bar, and the tables that it prints and records."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from benchmarks import machine, progress
from benchmarks.report.console import text_of
from benchmarks.results import Metric, Row, Table

Figures = dict[str, float]
Candidate = Callable[[], Figures]


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

    def steps(self, title: str, total: int) -> AbstractContextManager[progress.Step]:
        return progress.steps(f"{self.name}: {title}", total)

    def add(self, table: Table) -> Table:
        """Record a table and print it, with the load average."""
        table.load = machine.load_average()
        self.tables.append(table)
        print(text_of(table), flush=True)
        return table

    def interleave(
        self, title: str, candidates: Mapping[str, Candidate], rounds: int | None = None, warm_up: bool = False
    ) -> dict[str, Row]:
        """Measure every candidate once in each round, so that a slow moment of the machine affects all of them.

        With ``warm_up`` a round before the first fills caches and is not counted.
        """
        rows = {label: Row(key=label, label=label) for label in candidates}
        counted = rounds or self.rounds
        with self.steps(title, (counted + warm_up) * len(candidates)) as step:
            for number in range(counted + warm_up):
                for label, candidate in candidates.items():
                    step(f"{label}, round {number + 1 - warm_up}")
                    figures = candidate()
                    if number or not warm_up:
                        rows[label].add(figures)
        return rows

    def search(self, key: str, title: str, metrics: list[Metric], cells: Mapping[str, Candidate]) -> Table:
        """Measure each cell of a grid of settings once, and record all of them."""
        rows = self.interleave(title, cells, rounds=1)
        table = Table(key=key, title=title, metrics=metrics, rows=list(rows.values()))
        best = table.best()
        table.notes.append(f"best: {best.label}")
        return self.add(table)
