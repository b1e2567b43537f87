"""Many clients that add a job in a transaction each, with and without NOTIFY, and how long a commit holds its lock.

A transaction that notifies takes a lock before its commit is flushed, and keeps it until it has ended: such commits
follow one another. The lock is sampled: the share of the time in which it is held, divided by the commits a second, is
the time that each commit holds it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from benchmarks import durable_server
from benchmarks.database import SCHEMA, Database
from benchmarks.results import Metric, Table
from benchmarks.session import Candidate, Figures, Session

CLIENTS = (1, 4, 16, 64)
SCRIPTS = {
    "NOTIFY": f"select {SCHEMA}.add_job('noop', '{{\"id\": 1}}'::json);\n",
    "silent": f"select {SCHEMA}.add_job('noop', '{{\"id\": 1}}'::json);\n",
}
# The lock of NOTIFY is on the database with the number 0, in the catalogue 1262, pg_database.
HELD = b"select count(*) from pg_locks where locktype = 'object' and classid = 1262 and objid = 0 and granted"
METRICS = [
    Metric("rate", "jobs/s"),
    Metric("held", "% of the time the lock is held", 1),
    Metric("held_by_commit", "µs for each commit", 1),
]
PAUSE = 0.001


def pgbench() -> str | None:
    """Return the load generator of PostgreSQL."""
    if durable_server.is_owned():
        found = Path(durable_server.program("pgbench"))
        return str(found) if found.exists() else None
    return shutil.which("pgbench")


def measure_adders(session: Session, database: Database) -> Table | None:
    program = pgbench()
    if program is None:
        print("pgbench is not installed, so the lock of NOTIFY is not measured.")
        return None
    seconds = session.amount(5, 2)

    def candidate(clients: int, kind: str) -> Candidate:
        return lambda: _added(program, database, clients, seconds, kind)

    candidates = {f"{clients} client(s), {kind}": candidate(clients, kind) for clients in CLIENTS for kind in SCRIPTS}
    rows = session.interleave("clients that add", candidates)
    title = "One add_job in each transaction, beside one session that listens"
    return session.add(Table("adders", title, METRICS, list(rows.values())))


def _added(program: str, database: Database, clients: int, seconds: int, kind: str) -> Figures:
    database.empty()
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(SCRIPTS[kind])
        script.flush()
        options = ["--no-vacuum", f"--client={clients}", "--jobs=2", f"--time={seconds}", f"--file={script.name}"]
        environment = os.environ | ({"PGOPTIONS": f"-c {SCHEMA}.notify=off"} if kind == "silent" else {})
        process = subprocess.Popen(
            [program, *options, database.url],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        held = _sampled_lock(database.url, process)
        output, errors = process.communicate()
    found = re.search(r"tps = ([\d.]+)", output)
    if found is None:
        raise RuntimeError(f"Expected pgbench to report transactions a second, got {output or errors!r}.")
    rate = float(found[1])
    return {"rate": rate, "held": held * 100, "held_by_commit": held / rate * 1e6}


def _sampled_lock(url: str, process: subprocess.Popen[str]) -> float:
    """Return the share of the time in which the lock was held, and listen, until the process ends."""
    held = samples = 0
    with psycopg.connect(url, autocommit=True) as listener, psycopg.connect(url, autocommit=True) as sampler:
        listener.execute('listen "jobs:insert"')
        while process.poll() is None:
            row = sampler.execute(HELD).fetchone()
            held += bool(row and row[0])
            samples += 1
            for _ in listener.notifies(timeout=0):
                pass
            time.sleep(PAUSE)
    return held / max(samples, 1)
