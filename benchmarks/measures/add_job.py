"""The SQL functions add_job and add_jobs, beside those of graphile-worker.

Both schemas are in one database; ours has all its indexes. Runs alternate on one connection, and each figure is their
median.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from benchmarks.database import SCHEMA, Database, scratch_database
from benchmarks.peers.node import installation
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Session
from testproject import databases

ORIGINAL = "original"
ROUNDS = 12
CALLS = 150
BATCH = 100_000

CALL = "select * from {schema}.add_job('task', %s::json{options})"
SINGLE = {
    "bare insert": "insert into {schema}._private_jobs (task_id, payload) values (1, %s::json) returning *",
    "add_job": CALL.replace("{options}", ""),
    "add_job, named queue": CALL.replace("{options}", ", queue_name := 'queue'"),
    "add_job, new key": CALL.replace("{options}", ", job_key := 'key' || nextval('pg_temp.numbers')"),
    "add_job, same key": CALL.replace("{options}", ", job_key := 'key'"),
    "add_job, tomorrow": CALL.replace("{options}", ", run_at := now() + interval '1 day'"),
}
BATCHES = {
    "add_jobs": "'task', '{\"n\": 1}', null, null, null, null, null, null",
    "add_jobs, 100 queues": "'task', '{\"n\": 1}', 'queue' || n %% 100, null, null, null, null, null",
    "add_jobs, keys": "'task', '{\"n\": 1}', null, null, null, 'key' || n, null, null",
}

Run = Callable[[str], list[float]]


def measure(session: Session) -> None:
    rounds = session.options.rounds or session.amount(ROUNDS, 3)
    with scratch_database() as database:
        schemas = [SCHEMA, ORIGINAL] if install_original(database) else [SCHEMA]
        database.execute("create temporary sequence numbers")
        for mode in ("autocommit", "one transaction"):
            tried: dict[str, Run] = {
                name: lambda schema, text=text, mode=mode: calls(database, schema, text, mode)  # type: ignore[misc]
                for name, text in SINGLE.items()
            }
            compare(session, f"one call, {mode}", Metric("seconds", "µs"), 1e6, schemas, tried, rounds)
        tried = {
            name: lambda schema, spec=spec: batch(database, schema, spec)  # type: ignore[misc]
            for name, spec in BATCHES.items()
        }
        title = f"{BATCH:,} jobs in one call"
        compare(session, title, Metric("seconds", "ms"), 1e3, schemas, tried, max(3, rounds // 3))


def install_original(database: Database) -> bool:
    executable = installation.executable()
    if executable is None:
        print("npm is not installed, so graphile-worker is not measured.")
        return False
    url = databases.to_url(databases.from_url(database.url))
    command = installation.HOME / "node_modules" / ".bin" / "graphile-worker"
    options = ["--schema-only", "--schema", ORIGINAL, "--connection", url]
    subprocess.run([executable, command, *options], check=True, cwd=installation.HOME, stdout=subprocess.DEVNULL)
    return True


def compare(
    session: Session, title: str, metric: Metric, unit: float, schemas: list[str], tried: dict[str, Run], rounds: int
) -> None:
    names = {SCHEMA: "ours", ORIGINAL: "original"}
    for name, run in tried.items():
        rows = {schema: Row(names[schema], f"{name}, {names[schema]}") for schema in schemas}
        with session.steps(name, rounds) as step:
            for number in range(rounds):
                step(f"round {number + 1}")
                for schema in schemas:
                    for seconds in run(schema):
                        rows[schema].add({metric.key: seconds * unit})
        session.add(Table(f"{title}: {name}", f"{title}: {name}", [metric], list(rows.values()), baseline="ours"))


def calls(database: Database, schema: str, statement: str, mode: str) -> list[float]:
    """Return the time of each of many calls in a row."""
    database.execute(f"truncate {schema}._private_jobs")
    text = statement.format(schema=schema).encode()
    if mode == "one transaction":
        with database.connection.transaction():
            return [timed(lambda: database.connection.execute(text, ['{"n": 1}'])) for _ in range(CALLS)]
    return [timed(lambda: database.connection.execute(text, ['{"n": 1}'])) for _ in range(CALLS)]


def batch(database: Database, schema: str, spec: str) -> list[float]:
    database.execute(f"truncate {schema}._private_jobs")
    # The specs are built before the measurement.
    database.execute("drop table if exists specs")
    database.execute(
        f"create temporary table specs as select array_agg(row({spec})::{schema}.job_spec) as specs"
        f" from generate_series(1, {BATCH}) as n",
        [],
    )
    statement = f"select count(*) from specs, {schema}.add_jobs(specs.specs)".encode()
    return [timed(lambda: database.connection.execute(statement))]


def timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin
