"""Trivial jobs a second: as the worker is started and without its log, beside graphile-worker at its best settings.

The settings of graphile-worker are searched in a grid, for one process and for two. All cells are printed. Node is
built with all optimizations. The current Python may not be, so the Python of the system is measured, too, if it can run
the same code.
"""

from __future__ import annotations

from typing import Any

from benchmarks.draining import METRICS, RATE
from benchmarks.session import Candidate, Session
from benchmarks.workers import NODE_DEFAULTS, SILENT, Stage, node_grid, stage, systems_python

WORDS = {1: "one process", 2: "two processes"}


def measure(session: Session) -> None:
    count = session.amount(100_000, 20_000)
    with stage() as place:
        for processes in WORDS:
            best = _search(session, place, count * processes, processes) if place.theirs else {}
            _compare(session, place, count * processes, processes, best)


def _search(session: Session, place: Stage, count: int, processes: int) -> dict[str, Any]:
    """Return the best settings of graphile-worker for this number of processes."""

    def cell(settings: dict[str, Any]) -> Candidate:
        return lambda: place.drain_node(count, settings, processes=processes)

    grid = node_grid()
    cells = {label: cell(settings) for label, settings in grid.items()}
    title = f"graphile-worker, silent, {WORDS[processes]}: all settings that were tried"
    return grid[session.search(f"grid_{processes}", title, RATE, cells)]


def _compare(session: Session, place: Stage, count: int, processes: int, best: dict[str, Any]) -> None:
    def ours(*options: str, **more: str) -> Candidate:
        return lambda: place.drain_ours(count, *options, processes=processes, **more)

    def node(jobs: int, settings: dict[str, Any], *, logs: bool = False) -> Candidate:
        return lambda: place.drain_node(jobs, settings, processes=processes, logs=logs)

    candidates = {"ours, silent": ours(SILENT), "ours, with its log": ours()}
    systems = systems_python()
    if systems:
        candidates["ours, the system's Python, silent"] = ours(SILENT, python=systems)
    if best:
        candidates |= {
            "node at its best, silent": node(count, best),
            "node at its best, with its log": node(count, best, logs=True),
            "node, defaults, silent": node(count // 10, NODE_DEFAULTS),
            "node, defaults, with its log": node(count // 10, NODE_DEFAULTS, logs=True),
        }
    title = f"{count:,} trivial jobs, {WORDS[processes]} (the defaults of node: a tenth of the jobs)"
    samples = session.interleave(WORDS[processes], candidates)
    session.add(f"drain_{processes}", title, METRICS, samples, baseline="ours, silent")
