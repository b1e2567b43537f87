"""Trivial jobs a second: as the worker is started and without its log, beside graphile-worker at its best settings.

The settings of graphile-worker are searched in a grid, for one process and for two. All cells are printed. Node is
built with all optimizations. The current Python may not be, so the Python of the system is measured, too, if it can run
the same code.
"""

from __future__ import annotations

from typing import Any

from benchmarks.draining import METRICS, RATE
from benchmarks.peers.node import commands as node
from benchmarks.peers.ours.commands import SILENT, systems_python
from benchmarks.results import Table
from benchmarks.session import Candidate, Session
from benchmarks.workers import Stage, stage

PROCESSES = (1, 2)
WORDS = {1: "one process", 2: "two processes"}


def measure(session: Session) -> None:
    count = session.options.jobs or session.amount(100_000, 20_000)
    with stage() as place:
        for processes in PROCESSES:
            best = _search(session, place, count * processes, processes) if place.theirs else {}
            _compare(session, place, count * processes, processes, best)


def _search(session: Session, place: Stage, count: int, processes: int) -> dict[str, Any]:
    """Return the best settings of graphile-worker for this number of processes."""

    def cell(settings: dict[str, Any]) -> Candidate:
        return lambda: place.drain_node(count, settings, processes=processes).figures()

    grid = node.grid()
    cells = {label: cell(settings) for label, settings in grid.items()}
    title = f"graphile-worker, silent, {WORDS[processes]}: all settings that were tried"
    table = session.search(f"grid_{processes}", title, [RATE], cells)
    return grid[table.best().label]


def _compare(session: Session, place: Stage, count: int, processes: int, best: dict[str, Any]) -> None:
    candidates: dict[str, Candidate] = {
        "ours, silent": lambda: place.drain_ours(count, SILENT, processes=processes).figures(),
        "ours, with its log": lambda: place.drain_ours(count, processes=processes).figures(),
    }
    systems = systems_python()
    if systems:
        candidates["ours, the system's Python, silent"] = lambda: place.drain_ours(
            count, SILENT, processes=processes, python=systems
        ).figures()
    if best:
        candidates |= {
            "node at its best, silent": lambda: place.drain_node(count, best, processes=processes).figures(),
            "node at its best, with its log": lambda: place.drain_node(
                count, best, processes=processes, logs=True
            ).figures(),
            "node, defaults, silent": lambda: place.drain_node(
                count // 10, node.DEFAULTS, processes=processes
            ).figures(),
            "node, defaults, with its log": lambda: place.drain_node(
                count // 10, node.DEFAULTS, processes=processes, logs=True
            ).figures(),
        }
    rows = session.interleave(WORDS[processes], candidates)
    for label, row in rows.items():
        if label.startswith("node"):
            row.settings = best if "best" in label else node.DEFAULTS
    title = f"{count:,} trivial jobs, {WORDS[processes]} (the defaults of node: a tenth of the jobs)"
    session.add(Table(f"drain_{processes}", title, METRICS, list(rows.values()), baseline="ours, silent"))
