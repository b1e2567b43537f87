"""Jobs of named queues, which run one at a time and in order, beside graphile-worker."""

from __future__ import annotations

from typing import Any

from benchmarks import jobs
from benchmarks.commands import Command
from benchmarks.database import Database
from benchmarks.draining import RATE, drain
from benchmarks.peers.node import commands as node
from benchmarks.peers.ours.commands import SILENT
from benchmarks.results import Table
from benchmarks.session import Candidate, Figures, Session
from benchmarks.workers import Stage, stage

JOBS = 5000
TIME_LIMIT = 15
# graphile-worker runs few jobs of a queue in a second, and which of its settings is best does not change that.
TUNED = "10 at once, local queue 2,000, batch delay 0 ms"


def measure(session: Session) -> None:
    with stage() as place:
        for queues in (1, 500):
            rows = session.interleave(f"{queues} queue(s)", _candidates(place, queues, session.amount(TIME_LIMIT, 5)))
            title = f"{JOBS:,} jobs of {queues} named queue(s), one process"
            session.add(Table(f"queues_{queues}", title, [RATE], list(rows.values()), baseline="ours, silent"))


def _candidates(place: Stage, queues: int, time_limit: float) -> dict[str, Candidate]:
    def drained(database: Database, command: Command) -> Figures:
        return _drain(place, database, command, queues, time_limit)

    found: dict[str, Candidate] = {
        "ours, silent": lambda: drained(place.ours, place.our_worker(SILENT)),
        "ours, with its log": lambda: drained(place.ours, place.our_worker()),
    }
    theirs = place.theirs
    if theirs is not None:
        settings: dict[str, dict[str, Any]] = {"node, tuned": node.grid()[TUNED], "node, defaults": node.DEFAULTS}
        for label, values in settings.items():
            found[label] = lambda values=values: drained(theirs, place.node_worker(values))  # type: ignore[misc]
    return found


def _drain(place: Stage, database: Database, command: Command, queues: int, time_limit: float) -> Figures:
    database.empty()
    jobs.make_queues(database, queues)
    jobs.load(database, JOBS, queue=f"(select min(id) from {jobs.QUEUES}) + n % {queues}")
    left = jobs.left_in(database)
    done = drain([command], total=JOBS, left=left, server=place.server, time_limit=time_limit, report_every=100)
    return done.figures()
