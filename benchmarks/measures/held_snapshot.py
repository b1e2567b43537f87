"""Jobs a second and the time to start, before and while another transaction holds a snapshot."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from benchmarks.database import JOBS, Database
from benchmarks.draining import running
from benchmarks.measures.latency import percentile, stamps, start_time
from benchmarks.session import Figures, Metric, Samples, Session
from benchmarks.workers import SILENT, stage

METRICS = [
    Metric("rate", "jobs/s"),
    Metric("p50", "ms median", 2),
    Metric("p90", "ms 90th percentile", 2),
    Metric("p99", "ms 99th percentile", 2),
    Metric("earlier", "s until a job with an earlier time starts", 2),
    Metric("longest", "s for the slowest of them", 2),
]
BEFORE = "no snapshot is held"
HELD = "a snapshot is held, after ten minutes of jobs"
# Ten minutes with two thousand jobs a second.
HELD_JOBS = 1_200_000
PORTION = 100_000
NOTIFY = "select pg_notify('jobs:insert', json_build_object('r', random(), 'count', 1)::text)"


def measure(session: Session) -> None:
    with stage(with_node=False) as place:
        database, worker = place.ours, place.our_worker(SILENT, REPORT=os.devnull)
        samples = {BEFORE: Samples(), HELD: Samples()}
        database.empty()
        portions = session.amount(HELD_JOBS // PORTION, 2)
        with session.steps("held snapshot", 2 * session.rounds + portions) as step, running(worker) as process:
            stream = stamps(process)
            # The worker starts, and its first jobs are slower than those that follow.
            start_time(database, stream)
            _rate(database, PORTION // 2)
            for number in range(session.rounds):
                step(f"before, round {number + 1}")
                samples[BEFORE].add(_figures(database, stream))
            with psycopg.connect(database.url) as holder:
                holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                holder.execute("select 1")
                for number in range(portions):
                    step(f"{PORTION * (number + 1):,} jobs")
                    _rate(database, PORTION)
                for number in range(session.rounds):
                    step(f"held, round {number + 1}")
                    samples[HELD].add(_figures(database, stream))
        for each in samples.values():
            each.of["longest"] = [max(each.of["earlier"])]
        title = f"A transaction is open that began {portions * PORTION:,} jobs ago, one process"
        session.add("held_snapshot", title, METRICS, samples, baseline=BEFORE)


def _figures(database: Database, stream: Iterator[dict[str, Any]]) -> Figures:
    rate = _rate(database, PORTION // 2)
    time.sleep(1)
    found = sorted(start_time(database, stream) for _ in range(100))
    percentiles = {"p50": percentile(found, 0.5), "p90": percentile(found, 0.9), "p99": percentile(found, 0.99)}
    return {"rate": rate, **percentiles, "earlier": _earlier_job(database, stream)}


def _rate(database: Database, count: int) -> float:
    """Return the jobs a second from the commit that adds them until none is left."""
    left = database.left(after=database.last_id())
    database.insert(count)
    began = time.monotonic()
    database.execute(NOTIFY)
    while left.any():
        time.sleep(0.005)
    return count / (time.monotonic() - began)


def _earlier_job(database: Database, stream: Iterator[dict[str, Any]]) -> float:
    """Return the seconds until a job starts whose time is a minute ago: it comes before all that was claimed since."""
    began = time.time() * 1000
    database.execute(
        f"insert into {JOBS} (task_id, payload, run_at)"
        f" values ({database.task_id('stamp')}, '{{\"number\": 0}}', now() - interval '1 minute')"
    )
    database.execute(NOTIFY)
    return float(next(stream)["at"] - began) / 1000
