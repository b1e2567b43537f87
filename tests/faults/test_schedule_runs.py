"""What became of the runs of schedules, whatever happened to the workers that ran them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from django_graphile_worker.sql.schedules.runs import Run, RunOutcome, runs_of_schedules
from tests.faults.processes import Fleet
from tests.faults.world import World


def test_run_of_a_killed_worker__is_known_with_the_other_runs(world: World, fleet: Fleet) -> None:
    """The worker keeps no results and no history, and is killed while it holds a job."""
    victim = fleet.start()
    slow = _run_once(world, "until", {"word": "go"})
    world.wait_for("start")
    world.kill(victim)
    assert _latest(world, slow).outcome is RunOutcome.RUNNING
    successor = fleet.start()
    atomic, failing = _run_once(world, "exactly_once"), _run_once(world, "failing", max_attempts=1)
    world.wait_for("start", 3)
    world.continue_jobs("go")
    _wait_for(world, slow, lambda run: run.outcome.has_ended)
    assert (_latest(world, slow).outcome, _latest(world, slow).attempts) == (RunOutcome.SUCCEEDED, 2)
    _wait_for(world, atomic, lambda run: run.outcome.has_ended)
    assert _latest(world, atomic).outcome is RunOutcome.SUCCEEDED
    _wait_for(world, failing, lambda run: run.outcome.has_ended)
    failed = _latest(world, failing)
    assert failed.outcome is RunOutcome.FAILED
    assert failed.duration is not None
    assert successor.stop() == 0


def _run_once(world: World, task: str, payload: dict[str, Any] | None = None, **columns: Any) -> int:
    """Add a schedule that is due now, and once; return its id."""
    columns = {"name": task, "task": task, "payload": json.dumps(payload or {}), **columns}
    names, places = ", ".join(columns), ", ".join(["%s"] * len(columns))
    return int(
        world.value(
            f"insert into {{schema}}._private_schedules ({names}, run_at, missed)"
            f" values ({places}, clock_timestamp() + interval '100 milliseconds', 'once') returning id",
            *columns.values(),
        )
    )


def _runs(world: World, schedule_id: int) -> Sequence[Run]:
    with psycopg.connect(world.url) as connection, connection.cursor() as cursor:
        return runs_of_schedules(cursor, [schedule_id], schema=world.schema).get(schedule_id, ())


def _latest(world: World, schedule_id: int) -> Run:
    return _runs(world, schedule_id)[0]


def _wait_for(world: World, schedule_id: int, condition: Callable[[Run], object]) -> None:
    world.wait_until(lambda: any(condition(latest) for latest in _runs(world, schedule_id)[:1]))
