"""The cost of a job with 1 to 16 worker processes on the cores that there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.draining import METRICS
from benchmarks.peers.ours.commands import SILENT
from benchmarks.results import Metric, Table
from benchmarks.session import Figures, Session
from benchmarks.workers import Stage

PROCESSES = (1, 2, 4, 8, 16)
EFFICIENCY = Metric("efficiency", "jobs per CPU second")
WAITING = Metric("waiting", "sessions that wait for a lock", 2)
CONNECTIONS = Metric("connections", "connections")
SAMPLE = (
    "select count(*) filter (where wait_event_type in ('Lock', 'LWLock')), count(*) - 1 from pg_stat_activity"
    " where datname = current_database() and backend_type = 'client backend'"
)
PAUSE = 0.02


def measure_processes(session: Session, place: Stage) -> Table:
    count = session.amount(200_000, 30_000)
    candidates = {
        str(processes): lambda processes=processes: _drained(place, count, processes) for processes in PROCESSES
    }
    rows = session.interleave("worker processes", candidates)
    for row in rows.values():
        row.label = f"{row.key} process(es)"
    metrics = [*METRICS, EFFICIENCY, WAITING, CONNECTIONS]
    title = f"{count:,} trivial jobs, silent, by the number of worker processes"
    return session.add(Table("processes", title, metrics, list(rows.values()), baseline="1"))


def _drained(place: Stage, count: int, processes: int) -> Figures:
    with _sampled_sessions(place.ours.url) as samples:
        figures = place.drain_ours(count, SILENT, processes=processes).figures()
    spent = (figures["worker_cpu"] + figures["server_cpu"]) / 1e6
    waiting = sum(waiting for waiting, _ in samples) / max(len(samples), 1)
    # The session that the measurement itself counts with is not the worker's.
    connections = (max((every for _, every in samples), default=1) - 1) / processes
    return figures | {"efficiency": 1 / spent, "waiting": waiting, "connections": connections}


@contextmanager
def _sampled_sessions(url: str) -> Iterator[list[tuple[int, int]]]:
    """Count the sessions that wait for a lock, and all sessions, during the block."""
    samples: list[tuple[int, int]] = []
    ended = threading.Event()

    def sample() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not ended.wait(PAUSE):
                row = connection.execute(SAMPLE.encode()).fetchone()
                assert row is not None
                samples.append((row[0], row[1]))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()
