"""The buffers and the time of a claim of ten jobs, with backlogs of many kinds in the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.database import JOBS, QUEUES, SCHEMA, TASKS, Database, scratch_database
from benchmarks.session import Figures, Metric, Samples, Session
from benchmarks.workers import migrate
from django_graphile_worker.sql import claims

DUE, FUTURE = "now() - interval '1 hour'", "now() + interval '7 days'"
HELD = 100_001
# The values that are inserted for each n: (task_id, priority, run_at, job_queue_id, flags).
SHAPES = {
    "nothing": "",
    "future": f"1, 0, {FUTURE}, null, null",
    "future in 1,000 queues": f"1, 0, {FUTURE}, 1 + n % 1000, null",
    "due at another priority": f"1, 10, {DUE}, null, null",
    "an unknown task": f"2, 0, {DUE}, null, null",
    "a held queue": f"1, 0, {DUE}, {HELD}, null",
    "a held queue, 100,000 queues for later": f"1, 0, case when n % 100 = 0 then {DUE} else {FUTURE} end,"
    f" case when n % 100 = 0 then {HELD} else n end, null",
    "a forbidden flag": f"""1, 0, {DUE}, null, '{{"heavy": true}}'""",
    "forbidden flags, each in another set": f"1, 0, {DUE}, null, jsonb_build_object('f' || n, 1, 'heavy', 1)",
    "the same in 1,000 queues": f"1, 0, {DUE}, 1 + n % 1000, jsonb_build_object('f' || n, 1, 'heavy', 1)",
    "allowed flags, each in another set": f"1, 0, {DUE}, null, jsonb_build_object('f' || n, 1)",
    "1,000 tasks x 100 priorities, future": f"1 + n % 1000, n / 1000, {FUTURE}, null, null",
    "1,000 tasks x 100 priorities, due": f"1 + n % 1000, n / 1000, {DUE}, null, null",
    "10,000 tasks, due in 1,000 queues": f"1 + n % 10000, 0, {DUE}, 1 + n % 1000, null",
}
# The number of tasks that the worker has, if it is not one.
TASKS_OF = {
    "1,000 tasks x 100 priorities, future": 1000,
    "1,000 tasks x 100 priorities, due": 1000,
    "10,000 tasks, due in 1,000 queues": 10_000,
}
METRICS = [Metric("buffers", "buffers"), Metric("milliseconds", "ms", 2)]


def measure(session: Session) -> None:
    count = session.amount(100_000, 20_000)
    samples = {}
    with scratch_database(migrate) as database, session.steps("shapes", len(SHAPES)) as step:
        database.execute(f"insert into {TASKS} (identifier) select 't' || n from generate_series(1, 10000) as n")
        database.execute(f"insert into {QUEUES} (queue_name) select 'q' || n from generate_series(1, {HELD}) as n")
        database.execute(f"update {QUEUES} set locked_at = now(), locked_by = 'other' where id = {HELD}")
        for shape, values in SHAPES.items():
            step(shape)
            prepare(database, values, count)
            samples[shape] = Samples()
            samples[shape].add(claim(database, range(1, TASKS_OF.get(shape, 1) + 1)))
    session.add("claims", f"A claim of ten jobs, with {count:,} other jobs in the table", METRICS, samples)


def prepare(database: Database, values: str, rows: int) -> None:
    database.execute(f"truncate {JOBS}")
    columns = "task_id, priority, run_at, job_queue_id, flags"
    if values:
        database.execute(f"insert into {JOBS} ({columns}) select {values} from generate_series(1, {rows}) as n")
    database.execute(f"insert into {JOBS} (task_id) select 1 from generate_series(1, 3)")
    database.settle()


def claim(database: Database, tasks: Sequence[int]) -> Figures:
    cursor = Explaining(database)
    for _ in range(3):
        claims.claim_jobs(
            cursor,
            schema=SCHEMA,
            token="benchmark/1",
            task_ids=tasks,
            max_jobs=10,
            max_per_queue=10,
            forbidden_flags=["heavy"],
        )
    return {"buffers": cursor.buffers, "milliseconds": cursor.milliseconds}


class Explaining:
    """A cursor that explains each statement before it runs it, and rolls back."""

    def __init__(self, database: Database) -> None:
        self._connection = database.connection
        self._rows: list[Any] = []
        self.buffers = 0
        self.milliseconds = 0.0

    def execute(self, statement: str, parameters: Any) -> None:
        text = f"explain (analyze, buffers, timing off, format json) {statement}"
        with self._connection.transaction(force_rollback=True):
            plan = self._connection.execute(text.encode(), parameters).fetchall()[0][0][0]
        with self._connection.transaction(force_rollback=True):
            self._rows = self._connection.execute(statement.encode(), parameters).fetchall()
        self.buffers = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        self.milliseconds = plan["Execution Time"]

    def fetchall(self) -> list[Any]:
        return self._rows
