"""What a worker with fifty slots costs while there are no jobs: transactions and memory."""

from __future__ import annotations

import time

import psutil

from benchmarks.database import Database
from benchmarks.draining import Command, running
from benchmarks.measures.latency import stamps
from benchmarks.servers import Server
from benchmarks.session import Figures, Metric, Samples, Session
from benchmarks.workers import stage

METRICS = [Metric("transactions", "transactions/s", 2), Metric("memory", "MB")]


def measure(session: Session) -> None:
    with stage() as place:
        workers = {"ours": (place.ours, place.our_worker("--concurrency=50"))}
        if place.theirs is not None:
            settings = {"concurrentJobs": 50, "maxPoolSize": 52}
            workers["node, defaults"] = (place.theirs, place.node_worker(settings))
        # The parts of a start, the first recovery, and the ten seconds after which an idle session reports its
        # transactions must be over.
        before, seconds = session.amount(30, 12), session.amount(60, 10)
        samples = {label: Samples() for label in workers}
        with session.steps("idle workers", len(workers)) as step:
            for label, (database, command) in workers.items():
                step(label)
                samples[label].add(idle_figures(database, command, before, seconds, place.server))
        session.add("idle", f"A worker with fifty slots and no jobs for {seconds} s", METRICS, samples)


def idle_figures(database: Database, command: Command, before: float, seconds: float, server: Server) -> Figures:
    """Measure a worker that has nothing to do: for ``seconds``, beginning ``before`` seconds after its first job."""
    database.empty()
    database.load(1, task="stamp")
    # Autovacuum would add dozens of transactions that are not the worker's.
    with database.configured(autovacuum="off"), running(command) as started:
        next(stamps(started))
        time.sleep(before)
        process = psutil.Process(started.pid)
        transactions, cpu, server_cpu = _transactions(database), sum(process.cpu_times()[:2]), server.cpu_seconds()
        time.sleep(seconds)
        # Two transactions are those of the measurement itself.
        return {
            "transactions": max(0, _transactions(database) - transactions - 2) / seconds,
            "cpu": (sum(process.cpu_times()[:2]) - cpu) / seconds,
            "server_cpu": (server.cpu_seconds() - server_cpu) / seconds,
            "memory": process.memory_info().rss / 2**20,
        }


def _transactions(database: Database) -> int:
    database.execute("select pg_stat_force_next_flush()")
    return int(database.scalar("select xact_commit from pg_stat_database where datname = current_database()"))
