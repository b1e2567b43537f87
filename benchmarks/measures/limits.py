"""Ready jobs beside half a million limited jobs, the cost of claiming limited jobs, and the turns of fair keys."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import jobs
from benchmarks.commands import end
from benchmarks.database import SCHEMA, Database
from benchmarks.draining import RATE, SERVER_CPU, WORKER_CPU, drain
from benchmarks.jobs import JOBS
from benchmarks.measures.claims import METRICS, Explaining
from benchmarks.peers.ours.commands import SILENT
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Session
from benchmarks.workers import Stage, stage
from django_graphile_worker.limits import LimitDefinition, LimitNumbers
from django_graphile_worker.sql.limits import claim_limited, parameters_of

BACKLOG = 500_000
READY = 100_000
SLOTS = 10
EMPTY, PARKED, UNSORTED = "empty table", "waiting for full keys", "to be sorted"
KEYS = (500, 50_000)
RATIO = Metric("ratio", "of the empty table", 2)
ROUNDS = Metric("rounds", "rounds of the slots", 1)
OLD = "now() - interval '1 hour'"


def measure(session: Session) -> None:
    with stage(with_node=False) as place:
        _measure_backlogs(session, place)
        _measure_claims(session, place.ours)
        _measure_turns(session, place)


def _measure_backlogs(session: Session, place: Stage) -> None:
    count = session.amount(BACKLOG, 50_000)
    rows = {shape: Row(shape, shape) for shape in (EMPTY, PARKED, UNSORTED)}
    with session.steps("backlogs", session.rounds * 2) as step:
        for number in range(session.rounds):
            for shape in (PARKED, UNSORTED):
                step(f"{shape}, round {number + 1}")
                base, figures = (_beside(place, each, count) for each in (EMPTY, shape))
                rows[EMPTY].add(base)
                rows[shape].add({**figures, "ratio": figures["rate"] / base["rate"]})
    title = f"{READY:,} ready jobs beside {count:,} limited jobs, each after an empty table"
    session.add(Table("limits", title, [RATE, RATIO, WORKER_CPU, SERVER_CPU], list(rows.values())))


def _beside(place: Stage, shape: str, count: int) -> dict[str, float]:
    """Return the figures of a worker with limited tasks that runs ordinary jobs."""
    database = place.ours
    database.empty()
    if shape == PARKED:
        park(database, count, keys=500, state=2)
    elif shape == UNSORTED:
        jobs.load(database, count, task="limited", payload="json_build_object('account', n % 500)")
        # Keys that are closed: otherwise the limited jobs would run as well.
        _insert_keys(database, 500)
    after = jobs.last_id(database)
    jobs.load(database, READY)
    left = jobs.left_in(database, after=after)
    command = place.our_worker(SILENT, LIMITED="1")
    return drain([command], total=READY, left=left, server=place.server).figures()


def _measure_claims(session: Session, database: Database) -> None:
    rows = []
    for keys in KEYS:
        database.empty()
        park(database, session.amount(BACKLOG, 50_000), keys=keys, state=1)
        cursor = Explaining(database)
        numbers = LimitNumbers(concurrency=3)
        limit = LimitDefinition(name="account:{account}", numbers=numbers, is_fair=False, tasks=())
        for _ in range(3):
            claim_limited(
                cursor,
                schema=SCHEMA,
                token="benchmark/1",
                expiries={database.task_id("limited"): None},
                numbers=parameters_of([limit]),
                max_jobs=SLOTS,
            )
        rows.append(Row(str(keys), f"{keys:,} keys"))
        rows[-1].add({"buffers": cursor.buffers, "milliseconds": cursor.milliseconds})
    title = f"A claim of {SLOTS} limited jobs, with {session.amount(BACKLOG, 50_000):,} jobs in lanes"
    session.add(Table("limits_claims", title, METRICS, rows))


def _measure_turns(session: Session, place: Stage) -> None:
    row = Row("late", "one job of a tenant, beside 100,000 of another")
    for _ in range(session.rounds):
        row.add({"rounds": _rounds_until_late_tenant(place, session.amount(100_000, 20_000))})
    session.add(Table("limits_turns", "Rounds of the slots until a late tenant's job starts", [ROUNDS], [row]))


def _rounds_until_late_tenant(place: Stage, count: int) -> float:
    database = place.ours
    database.empty()
    jobs.load(database, count, task="fair", payload="json_build_object('tenant', 'large')")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        report.touch()
        command = place.our_worker(SILENT, f"--concurrency={SLOTS}", LIMITED="1", REPORT=str(report))
        worker = command.start(output=subprocess.DEVNULL, errors=subprocess.DEVNULL)
        try:
            _wait_for(report, "large", 5 * SLOTS)
            added = time.time()
            database.execute(f"select {SCHEMA}.add_job('fair', '{{\"tenant\": \"small\"}}')")
            _wait_for(report, "small", 1)
        finally:
            end(worker)
        starts = [line.split() for line in report.read_text().splitlines()]
        (small,) = (float(moment) for tenant, moment in starts if tenant == "small")
        return sum(added < float(moment) < small for tenant, moment in starts if tenant == "large") / SLOTS


def _wait_for(report: Path, tenant: str, count: int, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while report.read_text().count(f"{tenant} ") < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {count} jobs of the tenant {tenant}, got fewer after {seconds:g} s")
        time.sleep(0.005)


def _insert_keys(database: Database, keys: int, closed_for: str = "1 day") -> None:
    database.execute(
        f"insert into {SCHEMA}._private_limit_keys (limit_name, key_text, closed_until, opens_at)"
        f" select 'account:{{account}}', 'account:' || n, now() + interval '{closed_for}', null"
        f" from generate_series(0, {keys - 1}) as n"
    )


def park(database: Database, count: int, *, keys: int, state: int) -> None:
    """Insert limited jobs in lanes that are ready (1), or wait for keys that are closed (2)."""
    task_id = database.task_id("limited")
    _insert_keys(database, keys, "1 day" if state == 2 else "0")
    database.execute(
        f"insert into {SCHEMA}._private_limit_lanes (task_id, key_ids, queue_id, flags, state, blocked_by,"
        f" priority, head_run_at, head_id, turn, sorted_at) select {task_id}, array[id], 0, '{{}}', {state},"
        f" case when {state} = 2 then id end, 0, {OLD}, id, {OLD}, now() from {SCHEMA}._private_limit_keys"
    )
    database.execute(
        f"insert into {JOBS} (task_id, run_at, payload) select {task_id}, 'infinity',"
        f" json_build_object('account', n % {keys}) from generate_series(1, {count}) as n"
    )
    database.execute(
        f"insert into {SCHEMA}._private_limited_jobs (job_id, lane_id, task_id, priority, run_at, revision)"
        f" select job.id, lanes.ids[1 + job.id % {keys}], {task_id}, 0, {OLD}, 0 from {JOBS} as job"
        f" cross join (select array_agg(id) as ids from {SCHEMA}._private_limit_lanes) as lanes"
        f" where job.task_id = {task_id}"
    )
    for table in ("limited_jobs", "limit_lanes", "limit_keys"):
        database.execute(f"vacuum analyze {SCHEMA}._private_{table}")
    database.settle()
