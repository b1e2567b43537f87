"""The time from the start of the process to the first job, of both commands and of Node's library.

Node is built with all optimizations. The current Python may not be, so the Python of the system is measured, too, if it
can run the same code.
"""

from __future__ import annotations

import time

from benchmarks import jobs
from benchmarks.commands import Command, running
from benchmarks.database import Database
from benchmarks.measures.latency import stamps
from benchmarks.peers.node import commands as node
from benchmarks.peers.ours import commands as ours
from benchmarks.results import Metric, Table
from benchmarks.session import Figures, Session
from benchmarks.workers import Stage, stage

METRICS = [Metric("wall", "ms"), Metric("cpu", "ms of CPU")]
# A start is short and its time varies, so it is measured in more rounds than the others.
STARTS = 10


def measure(session: Session) -> None:
    with stage() as place:
        workers = _workers(place)
        candidates = {label: lambda entry=entry: _first_job(*entry) for label, entry in workers.items()}
        # The first round compiles byte code and fills the caches of the disk.
        rounds = max(session.rounds, session.amount(STARTS, 3))
        rows = session.interleave("starts", candidates, rounds=rounds, warm_up=True)
        baseline = "node, command" if place.theirs is not None else ""
        title = "From the start of the process to the first line of the first job"
        session.add(Table("start", title, METRICS, list(rows.values()), baseline=baseline))


def _workers(place: Stage) -> dict[str, tuple[Database, Command]]:
    found = {"ours, runworker": (place.ours, ours.runworker(place.ours.url))}
    systems = ours.systems_python()
    if systems:
        found["ours, the system's Python"] = (place.ours, ours.runworker(place.ours.url, python=systems))
    if place.theirs is not None:
        found["node, command"] = (place.theirs, node.cli(place.theirs.url))
        found["node, library"] = (place.theirs, place.node_worker(node.DEFAULTS))
    return found


def _first_job(database: Database, command: Command) -> Figures:
    database.empty()
    jobs.load(database, 1, task="stamp", payload="json_build_object('number', 0)")
    began = time.time() * 1000
    with running(command) as process:
        stamp = next(stamps(process))
    return {"wall": stamp["at"] - began, "cpu": stamp["cpu"]}
