"""Ready jobs beside half a million other rows, relative to the throughput on an otherwise empty table."""

from __future__ import annotations

from benchmarks import jobs
from benchmarks.database import SCHEMA, Database
from benchmarks.draining import RATE, drain
from benchmarks.jobs import JOBS
from benchmarks.peers.ours.commands import SILENT
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Session
from benchmarks.workers import Stage, stage

BACKLOG = 500_000
READY = 20_000
OLD = "now() - interval '1 hour'"
EMPTY = "empty table"
SHAPES = {
    "future": f"insert into {JOBS} (task_id, run_at) select {{task}}, now() + interval '1 day' from {{series}}",
    "permanently failed": f"insert into {JOBS} (task_id, run_at, attempts) select {{task}}, {OLD}, 25 from {{series}}",
    "unknown task": f"insert into {JOBS} (task_id, run_at) select {{unknown}}, {OLD} from {{series}}",
    "one busy queue": f"insert into {JOBS} (task_id, run_at, job_queue_id) select {{task}}, {OLD}, 1 from {{series}}",
    "50,000 queues, future": f"insert into {JOBS} (task_id, run_at, job_queue_id)"
    " select {task}, now() + interval '1 day', 1 + n % 50000 from {series}",
    "50,000 queues, ready": f"insert into {JOBS} (task_id, run_at, job_queue_id, priority)"
    f" select {{task}}, {OLD}, 1 + n % 50000, 1 from {{series}}",
    "50,000 busy queues": f"insert into {JOBS} (task_id, run_at, job_queue_id)"
    f" select {{task}}, {OLD}, 1 + n % 50000 from {{series}}",
    "forbidden flag": f"insert into {JOBS} (task_id, run_at, flags)"
    f""" select {{task}}, {OLD}, '{{{{"heavy": true}}}}' from {{series}}""",
    "paused task": f"insert into {JOBS} (task_id, run_at) select {{paused}}, {OLD} from {{series}}",
    "paused queue": f"insert into {JOBS} (task_id, run_at, job_queue_id) select {{task}}, {OLD}, 1 from {{series}}",
    "paused flag": f"insert into {JOBS} (task_id, run_at, flags)"
    f""" select {{task}}, {OLD}, '{{{{"later": true}}}}' from {{series}}""",
}
# What is paused in each of these shapes: its kind and its name.
PAUSES = {
    "paused task": ("task", "stamp"),
    "paused queue": ("queue", "queue 1"),
    "paused flag": ("flag", "later"),
}
RATIO = Metric("ratio", "of the empty table", 2)


def measure(session: Session) -> None:
    rows = {shape: Row(shape, shape) for shape in (EMPTY, *SHAPES)}
    with stage(with_node=False) as place, session.steps("shapes", session.rounds * len(SHAPES)) as step:
        for number in range(session.rounds):
            for shape in SHAPES:
                step(f"{shape}, round {number + 1}")
                base, rate = (_beside(session, place, each) for each in (EMPTY, shape))
                rows[EMPTY].add({"rate": base})
                rows[shape].add({"rate": rate, "ratio": rate / base})
    title = f"{READY:,} ready jobs beside {session.amount(BACKLOG, 50_000):,} others, each after an empty table"
    session.add(Table("backlog", title, [RATE, RATIO], list(rows.values())))


def _beside(session: Session, place: Stage, shape: str) -> float:
    database = place.ours
    database.empty()
    if shape != EMPTY:
        _make_backlog(database, shape, session.amount(BACKLOG, 50_000))
    after = jobs.last_id(database)
    jobs.load(database, READY)
    command = place.our_worker(SILENT, "--forbid-flag=heavy") if "flag" in shape else place.our_worker(SILENT)
    left = jobs.left_in(database, after=after)
    return drain([command], total=READY, left=left, server=place.server).figures()["rate"]


def _make_backlog(database: Database, shape: str, count: int) -> None:
    jobs.make_queues(database, 50_000 if "50,000" in shape else 1, busy="busy" in shape)
    series = f"generate_series(1, {count}) as n"
    names = {"task": database.task_id("noop"), "unknown": database.task_id("unknown")}
    names["paused"] = database.task_id("stamp")
    database.execute(SHAPES[shape].format(series=series, **names))
    if shape in PAUSES:
        kind, name = PAUSES[shape]
        database.execute(f"select {SCHEMA}._private_pause('{kind}', '{name}', null, '', '', false)")
