"""Ready jobs beside half a million other rows, relative to the throughput on an otherwise empty table."""

from __future__ import annotations

from benchmarks.database import JOBS, Database
from benchmarks.draining import RATE, drain
from benchmarks.session import Metric, Samples, Session
from benchmarks.workers import SILENT, Stage, stage

READY = 20_000
OLD = "now() - interval '1 hour'"
LATER = "now() + interval '1 day'"
EMPTY = "empty table"
# The columns and their values for each ``n``.
SHAPES = {
    "future": ("task_id, run_at", f"{{task}}, {LATER}"),
    "permanently failed": ("task_id, run_at, attempts", f"{{task}}, {OLD}, 25"),
    "unknown task": ("task_id, run_at", f"{{unknown}}, {OLD}"),
    "one busy queue": ("task_id, run_at, job_queue_id", f"{{task}}, {OLD}, 1"),
    "50,000 queues, future": ("task_id, run_at, job_queue_id", f"{{task}}, {LATER}, 1 + n % 50000"),
    "50,000 queues, ready": ("task_id, run_at, job_queue_id, priority", f"{{task}}, {OLD}, 1 + n % 50000, 1"),
    "50,000 busy queues": ("task_id, run_at, job_queue_id", f"{{task}}, {OLD}, 1 + n % 50000"),
    "forbidden flag": ("task_id, run_at, flags", f"""{{task}}, {OLD}, '{{{{"heavy": true}}}}'"""),
}
RATIO = Metric("ratio", "of the empty table", 2)


def measure(session: Session) -> None:
    count = session.amount(500_000, 50_000)
    samples = {shape: Samples() for shape in (EMPTY, *SHAPES)}
    with stage(with_node=False) as place, session.steps("shapes", session.rounds * len(SHAPES)) as step:
        for number in range(session.rounds):
            for shape in SHAPES:
                step(f"{shape}, round {number + 1}")
                base, rate = (_rate_beside(place, each, count) for each in (EMPTY, shape))
                samples[EMPTY].add({"rate": base})
                samples[shape].add({"rate": rate, "ratio": rate / base})
    title = f"{READY:,} ready jobs beside {count:,} others, each after an empty table"
    session.add("backlog", title, [RATE, RATIO], samples)


def _rate_beside(place: Stage, shape: str, count: int) -> float:
    database = place.ours
    database.empty()
    if shape != EMPTY:
        _make_backlog(database, shape, count)
    after = database.last_id()
    database.load(READY)
    command = place.our_worker(SILENT, "--forbid-flag=heavy") if "flag" in shape else place.our_worker(SILENT)
    return drain([command], total=READY, left=database.left(after), server=place.server)["rate"]


def _make_backlog(database: Database, shape: str, count: int) -> None:
    database.make_queues(50_000 if "50,000" in shape else 1, busy="busy" in shape)
    columns, values = SHAPES[shape]
    filled = values.format(task=database.task_id("noop"), unknown=database.task_id("unknown"))
    database.execute(f"insert into {JOBS} ({columns}) select {filled} from generate_series(1, {count}) as n")
