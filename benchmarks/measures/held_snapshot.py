"""Jobs a second and the time to start, before and while another transaction holds a snapshot."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from benchmarks import jobs
from benchmarks.commands import running
from benchmarks.database import Database
from benchmarks.measures.latency import ADD, stamps
from benchmarks.peers.ours.commands import SILENT
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Session
from benchmarks.workers import stage

METRICS = [
    Metric("rate", "jobs/s"),
    Metric("p50", "ms median", 2),
    Metric("p90", "ms 90th percentile", 2),
    Metric("p99", "ms 99th percentile", 2),
    Metric("earlier", "s until a job with an earlier time starts", 2),
]
# Ten minutes with two thousand jobs a second.
HELD_JOBS = 1_200_000
PORTION = 100_000
SAMPLES = 100


def measure(session: Session) -> None:
    with stage(with_node=False) as place:
        worker = place.our_worker(SILENT, REPORT=os.devnull)
        rows = [Row("before", "no snapshot is held"), Row("held", "a snapshot is held, after ten minutes of jobs")]
        place.ours.empty()
        portions = session.amount(HELD_JOBS // PORTION, 2)
        with session.steps("held snapshot", 2 * session.rounds + portions) as step, running(worker) as process:
            stream = stamps(process)
            _start(place.ours, stream)
            for number in range(session.rounds):
                step(f"before, round {number + 1}")
                rows[0].add(_figures(place.ours, stream))
            with _snapshot(place.ours):
                for number in range(portions):
                    step(f"{PORTION * (number + 1):,} jobs")
                    _rate(place.ours, PORTION)
                for number in range(session.rounds):
                    step(f"held, round {number + 1}")
                    rows[1].add(_figures(place.ours, stream))
        title = f"A transaction is open that began {portions * PORTION:,} jobs ago, one process"
        session.add(Table("held_snapshot", title, METRICS, rows, baseline="before"))


def _start(database: Database, stream: Iterator[dict[str, Any]]) -> None:
    """Let the worker start, and run the first jobs, which are slower than those that follow."""
    database.execute(ADD.decode(), [0])
    next(stream)
    _rate(database, PORTION // 2)


def _figures(database: Database, stream: Iterator[dict[str, Any]]) -> dict[str, float]:
    rate = _rate(database, PORTION // 2)
    time.sleep(1)
    milliseconds = sorted(_start_times(database, stream))
    places = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    found = {name: milliseconds[int(len(milliseconds) * share)] for name, share in places.items()}
    return {"rate": rate, **found, "earlier": _earlier_job(database, stream)}


def _rate(database: Database, count: int) -> float:
    """Return the jobs a second from the commit that adds them until none is left."""
    after = jobs.last_id(database)
    database.execute(
        f"insert into {jobs.JOBS} (task_id, payload)"
        f" select {database.task_id('noop')}, json_build_object('id', n) from generate_series(1, {count}) as n"
    )
    began = time.monotonic()
    database.execute("select pg_notify('jobs:insert', json_build_object('r', random(), 'count', 1)::text)")
    left = jobs.left_in(database, after=after)
    while left.any():
        time.sleep(0.005)
    return count / (time.monotonic() - began)


def _start_times(database: Database, stream: Iterator[dict[str, Any]]) -> Iterator[float]:
    """Yield the milliseconds from add_job to the first line of the task, of an idle worker."""
    for number in range(SAMPLES):
        began = time.time() * 1000
        database.execute(ADD.decode(), [number])
        yield next(stream)["at"] - began
        time.sleep(0.02)


def _earlier_job(database: Database, stream: Iterator[dict[str, Any]]) -> float:
    """Return the seconds until a job starts whose time is a minute ago: it comes before all that was claimed since."""
    began = time.time() * 1000
    database.execute(
        f"insert into {jobs.JOBS} (task_id, payload, run_at)"
        f" values ({database.task_id('stamp')}, '{{\"number\": 0}}', now() - interval '1 minute')"
    )
    database.execute("select pg_notify('jobs:insert', json_build_object('r', random(), 'count', 1)::text)")
    return float(next(stream)["at"] - began) / 1000


@contextmanager
def _snapshot(database: Database) -> Iterator[None]:
    with psycopg.connect(database.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select 1")
        yield
