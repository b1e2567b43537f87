"""The time from add_job to the first line of the task, for an idle worker and a job every 20 ms."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from benchmarks.commands import Command, running
from benchmarks.database import SCHEMA, Database
from benchmarks.peers.node import commands as node
from benchmarks.peers.ours.commands import SILENT
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Session
from benchmarks.workers import Stage, stage

METRICS = [Metric("p50", "ms median", 2), Metric("p99", "ms 99th percentile", 2)]
ADD = f"select {SCHEMA}.add_job('stamp', json_build_object('number', %s::int))".encode()
WARM_UP = 10


def measure(session: Session) -> None:
    with stage() as place:
        workers = _workers(place)
        rows = {label: Row(label, label) for label in workers}
        with session.steps("jobs", session.rounds * len(workers)) as step:
            for number in range(session.rounds):
                for label, (database, command) in workers.items():
                    step(f"{label}, round {number + 1}")
                    found = sorted(_latencies(database, command, session.amount(200, 60)))
                    rows[label].samples.setdefault("all", []).extend(found)
                    rows[label].add({"p50": found[len(found) // 2], "p99": found[int(len(found) * 0.99)]})
        title = "From add_job to the first line of the task, idle worker"
        session.add(Table("latency", title, METRICS, list(rows.values()), baseline=next(iter(rows))))


def _workers(place: Stage) -> dict[str, tuple[Database, Command]]:
    found = {
        "ours, with its log": (place.ours, place.our_worker()),
        "ours, silent": (place.ours, place.our_worker(SILENT)),
    }
    if place.theirs is not None:
        found |= {
            "node, defaults, with its log": (place.theirs, place.node_worker(node.DEFAULTS, logs=True)),
            "node, defaults, silent": (place.theirs, place.node_worker(node.DEFAULTS)),
        }
    return found


def stamps(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what the task ``stamp`` writes, among the lines of the log."""
    for line in process.stdout or ():
        if line.startswith("{") and '"at"' in line:
            yield json.loads(line)


def _latencies(database: Database, command: Command, count: int) -> list[float]:
    database.empty()
    found = []
    with running(command) as process, psycopg.connect(database.url, autocommit=True) as adder:
        stream = stamps(process)
        # The first job waits until the worker has started. Then the parts of a start end that follow the first job.
        adder.execute(ADD, [0])
        next(stream)
        time.sleep(1)
        for number in range(count + WARM_UP):
            began = time.time() * 1000
            adder.execute(ADD, [number])
            found.append(next(stream)["at"] - began)
            time.sleep(0.02)
    return found[WARM_UP:]
