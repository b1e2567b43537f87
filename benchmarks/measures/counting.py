"""Trivial jobs with and without statistics, which are written every second here instead of every ten."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.draining import RATE, WORKER_CPU
from benchmarks.peers.ours.commands import SILENT
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Figures, Session
from benchmarks.workers import Stage, stage

SHARE = Metric("share", "% of the worker's CPU time", 2)


def measure(session: Session) -> None:
    count = session.options.jobs or session.amount(100_000, 20_000)
    rows = {mode: Row(mode, label) for mode, label in (("off", "without statistics"), ("timed", "with statistics"))}
    rounds = 2 * session.rounds
    with stage(with_node=False) as place, session.steps("pairs", rounds) as step:
        for number in range(rounds):
            step(f"pair {number + 1}")
            for mode in ("off", "timed") if number % 2 else ("timed", "off"):
                rows[mode].add(_drained(place, count, mode))
    title = f"{count:,} trivial jobs, silent, in pairs"
    session.add(Table("counting", title, [RATE, WORKER_CPU, SHARE], list(rows.values()), baseline="off"))


def _drained(place: Stage, count: int, mode: str) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "counted"
        variables: Any = {"COUNTING": mode, "COUNTED": str(counted), "HEARTBEAT_INTERVAL": "1"}
        figures = place.drain_ours(count, SILENT, **variables).figures()
        if counted.exists():
            counting, cpu = (float(part) for part in counted.read_text(encoding="ascii").split())
            figures["share"] = counting / cpu * 100
    return figures
