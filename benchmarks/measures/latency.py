"""The time from add_job to the first line of the task, for an idle worker and a job every 20 ms."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.database import SCHEMA, Database
from benchmarks.draining import Command, running
from benchmarks.session import Figures, Metric, Samples, Session
from benchmarks.workers import NODE_DEFAULTS, stage

METRICS = [Metric("p50", "ms median", 2), Metric("p99", "ms 99th percentile", 2)]
ADD = f"select {SCHEMA}.add_job('stamp', json_build_object('number', %s::int))"
WARM_UP = 10


def measure(session: Session) -> None:
    with stage() as place:
        workers = {"ours, with its log": (place.ours, place.our_worker())}
        if place.theirs is not None:
            workers["node, defaults, with its log"] = (place.theirs, place.node_worker(NODE_DEFAULTS, logs=True))
        samples = {label: Samples() for label in workers}
        with session.steps("jobs", session.rounds * len(workers)) as step:
            for number in range(session.rounds):
                for label, (database, command) in workers.items():
                    step(f"{label}, round {number + 1}")
                    samples[label].add(_figures(database, command, session.amount(200, 60)))
        title = "From add_job to the first line of the task, idle worker"
        session.add("latency", title, METRICS, samples, baseline=next(iter(samples)))


def _figures(database: Database, command: Command, count: int) -> Figures:
    database.empty()
    with running(command) as process:
        stream = stamps(process)
        # The first job waits until the worker has started. Then the parts of a start end that follow the first job.
        start_time(database, stream)
        time.sleep(1)
        found = sorted([start_time(database, stream) for _ in range(count + WARM_UP)][WARM_UP:])
    return {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99)}


def stamps(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what the task ``stamp`` writes, among the lines of the log."""
    for line in process.stdout or ():
        if line.startswith("{") and '"at"' in line:
            yield json.loads(line)


def start_time(database: Database, stream: Iterator[dict[str, Any]]) -> float:
    """Return the milliseconds from add_job to the first line of the task, and let the worker rest for 20 ms."""
    began = time.time() * 1000
    database.execute(ADD, [0])
    found = float(next(stream)["at"] - began)
    time.sleep(0.02)
    return found


def percentile(ordered: list[float], share: float) -> float:
    return ordered[int(len(ordered) * share)]
