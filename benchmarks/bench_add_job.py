"""Compare the SQL functions add_job and add_jobs of this package with those of graphile-worker.

Both schemas are in one database; ours has all its indexes. Runs alternate on one connection, and each figure is their
median.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.database import SCHEMA, Database, scratch_database
from benchmarks.peers import node
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


def main() -> int:
    rounds = 3 if "--quick" in sys.argv else ROUNDS
    with scratch_database() as database:
        schemas = [SCHEMA, ORIGINAL] if install_original(database) else [SCHEMA]
        database.execute("create temporary sequence numbers")
        print(f"{'':32}{'ours':>10}{'original':>10}{'ratio':>8}")
        for mode in ("autocommit", "one transaction"):
            print(f"one call, {mode}, microseconds")
            for name, statement in SINGLE.items():
                compare(name, schemas, rounds, lambda schema: calls(database, schema, statement, mode), 1e6)  # noqa: B023
        print(f"{BATCH:,} jobs in one call, milliseconds")
        for name, spec in BATCHES.items():
            compare(name, schemas, max(3, rounds // 3), lambda schema: batch(database, schema, spec), 1e3)  # noqa: B023
    return 0


def install_original(database: Database) -> bool:
    executable = node.executable()
    if executable is None:
        print("npm is not installed, so graphile-worker is not measured.")
        return False
    url = databases.to_url(databases.from_url(database.url))
    command = node.HOME / "node_modules" / ".bin" / "graphile-worker"
    options = ["--schema-only", "--schema", ORIGINAL, "--connection", url]
    subprocess.run([executable, command, *options], check=True, cwd=node.HOME, stdout=subprocess.DEVNULL)
    return True


def compare(name: str, schemas: list[str], rounds: int, run: Run, unit: float) -> None:
    times: dict[str, list[float]] = {schema: [] for schema in schemas}
    for _ in range(rounds):
        for schema in schemas:
            times[schema] += run(schema)
    medians = [statistics.median(times[schema]) for schema in schemas]
    ratio = f"{medians[-1] / medians[0]:7.2f}x" if len(medians) > 1 else ""
    print(f"  {name:30}" + "".join(f"{median * unit:10.0f}" for median in medians) + ratio, flush=True)


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


if __name__ == "__main__":
    sys.exit(main())
