"""Schedules of the database: what ten thousand of them cost an idle worker, and how long it takes to fire all of them.

The idle worker has no schedules, or schedules of which none is due. For the second part, all schedules have the same
minute; one and five workers fire them and run their jobs.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.database import SCHEMA, Database
from benchmarks.draining import Costs, end, wait
from benchmarks.measures.idle import idle_figures
from benchmarks.session import Candidate, Figures, Metric, Samples, Session
from benchmarks.workers import SILENT, Stage, stage

NUMBER = 10_000
WORKERS = (1, 5)
SCHEDULES = f"{SCHEMA}._private_schedules"
RUNS = f"{SCHEMA}._private_schedule_runs"
# A minute that does not come during a measurement.
NEVER = "59 23 31 12 *"
# The workers must have started, and computed the next time of each schedule, before the minute comes.
LEAD = timedelta(seconds=25)
IDLE = [
    Metric("transactions", "transactions a minute", 1),
    Metric("cpu", "CPU seconds a minute of the worker", 3),
    Metric("server_cpu", "CPU seconds a minute of the server", 3),
    Metric("memory", "MB"),
]
FIRING = [
    Metric("added", "s until all jobs were added", 2),
    Metric("ran", "s until all jobs have run", 2),
    Metric("worker_cpu", "CPU seconds of the workers", 2),
    Metric("server_cpu", "CPU seconds of the server", 2),
]


def measure(session: Session) -> None:
    number = session.amount(NUMBER, 1_000)
    with stage(with_node=False) as place:
        _measure_idle(session, place, number)
        _measure_firing(session, place, number)


def load(database: Database, number: int, cron: str) -> None:
    """Replace all schedules by new ones with this cron line."""
    database.execute(f"truncate {SCHEDULES}, {RUNS}, {SCHEMA}._private_schedule_changes")
    database.execute(
        f"insert into {SCHEDULES} (name, task, payload, cron)"
        " select 'tenant ' || n, 'noop', jsonb_build_object('tenant', n), %s from generate_series(1, %s) as n",
        [cron, number],
    )
    database.execute(f"vacuum analyze {SCHEDULES}")


def _measure_idle(session: Session, place: Stage, number: int) -> None:
    before, seconds = session.amount(30, 12), session.amount(120, 20)
    counts = {"no schedules": 0, f"{number:,} schedules, none of them due": number}
    samples = {label: Samples() for label in counts}
    with session.steps("idle workers", len(counts)) as step:
        for label, count in counts.items():
            step(label)
            load(place.ours, count, NEVER)
            figures = idle_figures(place.ours, place.our_worker(), before, seconds, place.server)
            in_a_minute = {metric: figures[metric] * 60 for metric in ("transactions", "cpu", "server_cpu")}
            samples[label].add(figures | in_a_minute)
    session.add("idle", f"An idle worker for {seconds} s, with and without schedules", IDLE, samples)


def _measure_firing(session: Session, place: Stage, number: int) -> None:
    def candidate(workers: int) -> Candidate:
        return lambda: _fired(place, number, workers)

    candidates = {f"{workers} worker{'s' if workers > 1 else ''}": candidate(workers) for workers in WORKERS}
    samples = session.interleave("minutes", candidates)
    session.add("firing", f"{number:,} schedules that are due at the same minute", FIRING, samples)


def _fired(place: Stage, number: int, workers: int) -> Figures:
    """Return the seconds from the minute until all jobs were added, and until they have run."""
    database = place.ours
    database.empty()
    minute = _coming_minute(database)
    load(database, number, f"{minute.minute} {minute.hour} {minute.day} {minute.month} *")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        variables = {"REPORT": str(folder / "report")}
        command = place.our_worker(SILENT)
        log = stack.enter_context((folder / "log").open("wb"))
        started = [command.start(output=log, errors=subprocess.STDOUT, **variables) for _ in range(workers)]
        for worker in started:
            stack.callback(end, worker)
        wait(lambda: _is_ready(database, workers), started, folder / "log")
        time.sleep(max(0.0, (minute - _now(database)).total_seconds() - 1))
        costs = Costs(started, place.server)
        wait(lambda: database.scalar(f"select count(*) from {RUNS}") >= number, started, folder / "log")
        left = database.left()
        wait(lambda: not left.any(), started, folder / "log")
        ran = (_now(database) - minute).total_seconds()
        spent = costs.since()
        _refuse_errors(database, number)
    added = (database.scalar(f"select max(added_at) from {RUNS}") - minute).total_seconds()
    return {"added": added, "ran": ran, **spent}


def _coming_minute(database: Database) -> datetime:
    moment = _now(database) + LEAD
    return datetime.fromtimestamp(math.ceil(moment.timestamp() / 60) * 60, UTC)


def _is_ready(database: Database, workers: int) -> bool:
    """Return whether all workers have registered, and the next time of each schedule is known."""
    alive = f"select count(*) from {SCHEMA}._private_workers where last_heartbeat_at > now() - interval '1 minute'"
    unknown = f"select exists (select from {SCHEDULES} where next_at = '-infinity')"
    return bool(database.scalar(alive) >= workers and not database.scalar(unknown))


def _refuse_errors(database: Database, number: int) -> None:
    """Raise if a schedule was fired twice, or not at all: then the times mean nothing."""
    fired, schedules = database.execute(f"select count(*), count(distinct schedule_id) from {RUNS}").fetchone()
    if fired != number or schedules != number:
        raise RuntimeError(f"{number} schedules were due, but there are {fired} runs of {schedules} schedules.")


def _now(database: Database) -> datetime:
    moment: datetime = database.scalar("select clock_timestamp()")
    return moment.astimezone(UTC)
