"""One worker command that serves two databases, beside one database with the same number of jobs.

On the same server this shows that it works and what it costs. The gain comes from servers on machines of their own,
each with its own CPU, log and NOTIFY lock.
"""

from __future__ import annotations

from benchmarks import jobs
from benchmarks.database import Database, scratch_database
from benchmarks.draining import METRICS, drain
from benchmarks.peers.ours import commands as ours
from benchmarks.results import Table
from benchmarks.session import Figures, Session
from benchmarks.workers import Stage


def measure_two_databases(session: Session, place: Stage) -> Table:
    count = session.amount(100_000, 20_000)
    with scratch_database(suffix="_second") as second:
        rows = session.interleave(
            "databases",
            {
                "one database, one process": lambda: place.drain_ours(count, ours.SILENT).figures(),
                "two databases, one process": lambda: _drained(place, second, count, 1),
                "one database, two processes": lambda: place.drain_ours(count, ours.SILENT, processes=2).figures(),
                "two databases, two processes": lambda: _drained(place, second, count, 2),
            },
        )
    title = f"{count:,} trivial jobs, silent, in one database or half of them in each of two on the same server"
    return session.add(Table("databases", title, METRICS, list(rows.values()), baseline="one database, one process"))


def _drained(place: Stage, second: Database, count: int, processes: int) -> Figures:
    for database in (place.ours, second):
        database.empty()
        jobs.load(database, count // 2)
    options = [ours.SILENT, "--database=default", "--database=second", f"--processes={processes}"]
    command = ours.runworker(place.ours.url, *options, second=second.url)
    left = jobs.left_in(place.ours, second)
    with jobs.gate(place.ours, second) as open_gate:
        done = drain([command], total=count, left=left, server=place.server, processes=processes, open_gate=open_gate)
    return done.figures()
