"""The time from the start of the process to the first job, of both commands.

Node is built with all optimizations. The current Python may not be, so the Python of the system is measured, too, if it
can run the same code.
"""

from __future__ import annotations

import time

from benchmarks.database import Database
from benchmarks.draining import Command, running
from benchmarks.measures.latency import stamps
from benchmarks.session import Candidate, Metric, Session
from benchmarks.workers import Stage, stage, systems_python

# A start is short and its time varies, so it is measured in more rounds than the others.
STARTS = 10


def measure(session: Session) -> None:
    with stage() as place:
        # The first round compiles byte code and fills the caches of the disk.
        rounds = max(session.rounds, session.amount(STARTS, 3))
        samples = session.interleave("starts", _candidates(place), rounds=rounds, warm_up=True)
        title = "From the start of the process to the first line of the first job"
        session.add("start", title, [Metric("wall", "ms")], samples, baseline="node, command")


def _candidates(place: Stage) -> dict[str, Candidate]:
    def candidate(database: Database, command: Command) -> Candidate:
        return lambda: {"wall": _first_job(database, command)}

    found = {"ours, runworker": candidate(place.ours, place.our_worker())}
    systems = systems_python()
    if systems:
        found["ours, the system's Python"] = candidate(place.ours, place.our_worker(python=systems))
    if place.theirs is not None:
        found["node, command"] = candidate(place.theirs, place.node_command())
    return found


def _first_job(database: Database, command: Command) -> float:
    database.empty()
    database.load(1, task="stamp")
    began = time.time() * 1000
    with running(command) as process:
        return float(next(stamps(process))["at"] - began)
