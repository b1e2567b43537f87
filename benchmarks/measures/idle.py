"""What a worker with fifty slots costs while there are no jobs: transactions, memory, CPU time and connections."""

from __future__ import annotations

import time

import psutil

from benchmarks import jobs
from benchmarks.commands import Command, running
from benchmarks.database import Database, configured
from benchmarks.measures.latency import stamps
from benchmarks.results import Metric, Row, Table
from benchmarks.server import Server
from benchmarks.session import Figures, Session
from benchmarks.workers import stage

METRICS = [
    Metric("transactions", "transactions/s", 2),
    Metric("memory", "MB"),
    Metric("cpu", "% of a core", 2),
    Metric("connections", "connections"),
]


def measure(session: Session) -> None:
    with stage() as place:
        workers = {"ours": (place.ours, place.our_worker("--concurrency=50"))}
        if place.theirs is not None:
            settings = {"concurrentJobs": 50, "maxPoolSize": 52}
            workers["node, defaults"] = (place.theirs, place.node_worker(settings))
        # The parts of a start, the first recovery, and the ten seconds after which an idle session reports its
        # transactions must be over.
        before, seconds = session.amount(30, 12), session.amount(60, 10)
        rows = {label: Row(label, label) for label in workers}
        with session.steps("idle workers", len(workers)) as step:
            for label, (database, command) in workers.items():
                step(label)
                rows[label].add(idle_figures(database, command, before, seconds, place.server))
        session.add(
            Table("idle", f"A worker with fifty slots and no jobs for {seconds} s", METRICS, list(rows.values()))
        )


def idle_figures(database: Database, command: Command, before: float, seconds: float, server: Server) -> Figures:
    """Measure a worker that has nothing to do: for ``seconds``, beginning ``before`` seconds after its first job."""
    database.empty()
    jobs.load(database, 1, task="stamp", payload="json_build_object('number', 0)")
    # Autovacuum would add dozens of transactions that are not the worker's.
    with configured(database.connection, {"autovacuum": "off"}), running(command) as started:
        next(stamps(started))
        time.sleep(before)
        process = psutil.Process(started.pid)
        transactions, cpu, server_cpu = _transactions(database), sum(process.cpu_times()[:2]), server.cpu_seconds()
        time.sleep(seconds)
        # Two transactions are those of the measurement itself.
        return {
            "transactions": max(0, _transactions(database) - transactions - 2) / seconds,
            "cpu": (sum(process.cpu_times()[:2]) - cpu) / seconds * 100,
            "server_cpu": (server.cpu_seconds() - server_cpu) / seconds * 100,
            "memory": process.memory_info().rss / 2**20,
            "connections": _connections(database),
        }


def _connections(database: Database) -> int:
    """Return the number of sessions in the database, without that of the measurement."""
    return int(database.scalar("select count(*) - 1 from pg_stat_activity where datname = current_database()"))


def _transactions(database: Database) -> int:
    database.execute("select pg_stat_force_next_flush()")
    return int(database.scalar("select xact_commit from pg_stat_database where datname = current_database()"))
