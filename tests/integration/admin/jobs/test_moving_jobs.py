"""Actions on all jobs that match, while workers and other users move jobs between states at every step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.admin.jobs import bulk_action
from django_graphile_worker.admin.jobs.bulk_action import BulkAction, BulkProgress
from django_graphile_worker.admin.jobs.job_actions import ACTIONS
from django_graphile_worker.admin.jobs.search import condition_of
from django_graphile_worker.admin.visible_jobs import ids_subquery
from django_graphile_worker.models import Job
from django_graphile_worker.sql.inspection.job_list import Criteria, State
from django_graphile_worker.sql.job_actions import bulk_steps
from tests.support.factories import make_job, minutes_ago
from tests.support.operating import execute

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = "django-worker-0123456789abcdef01/7"
KINDS: dict[State, dict[str, Any]] = {
    State.READY: {"run_at": minutes_ago(5)},
    State.SCHEDULED: {"run_at": minutes_ago(-60 * 24)},
    State.RETRYING: {"run_at": minutes_ago(-60 * 24), "attempts": 1, "last_error": "KeyError: x"},
    State.FAILED: {"attempts": 25, "last_error": "KeyError: x"},
    State.RUNNING: {"attempts": 1, "locked_by": WORKER},
}
RELEASED = "locked_at = null, locked_by = null"
# What becomes of jobs while an action runs: the states that they must have, and the change. "" deletes the job.
MOVES: dict[str, tuple[tuple[State, ...], str]] = {
    "falls due": ((State.SCHEDULED, State.RETRYING), "run_at = now()"),
    "is claimed": ((State.READY,), f"locked_at = now(), locked_by = '{WORKER}', attempts = attempts + 1"),
    "is returned": ((State.RUNNING,), f"{RELEASED}, attempts = attempts - 1"),
    "fails": (
        (State.RUNNING,),
        f"{RELEASED}, last_error = 'ValueError: y', run_at = now() + interval '1 hour', updated_at = clock_timestamp()",
    ),
    "fails permanently": (
        (State.RUNNING,),
        f"{RELEASED}, last_error = 'ValueError: y', attempts = max_attempts, updated_at = clock_timestamp()",
    ),
    "is retried": ((State.FAILED,), "attempts = 0, run_at = now(), updated_at = clock_timestamp()"),
    "is rescheduled": (
        (State.READY, State.SCHEDULED, State.RETRYING),
        "run_at = now() + interval '2 hours', priority = 3, updated_at = clock_timestamp()",
    ),
    "finishes": ((State.RUNNING,), ""),
}


class Mover:
    """Moves a few jobs between every two steps, and remembers what the steps did with which jobs."""

    def __init__(self, seed: int, schema: str) -> None:
        self.chance = random.Random(seed)
        self.schema = schema
        self.changed: Counter[int] = Counter()
        # What each visit of a job found.
        self.visits: dict[int, list[str]] = {}
        self.moves: Counter[str] = Counter()

    def move(self) -> None:
        for name, (states, change) in self.chance.sample(sorted(MOVES.items()), 4):
            found = self.ids_in(*states)
            if found:
                what = (
                    f"update {{schema}}._private_jobs set {change}" if change else "delete from {schema}._private_jobs"
                )
                execute(f"{what} where id = %s", [self.chance.choice(found)])
                self.moves[name] += 1

    def ids_in(self, *states: State) -> list[int]:
        ids = list(Job.objects.order_by("pk").values_list("pk", flat=True))
        with connection.cursor() as cursor:
            by_state = bulk_steps.states_of(cursor, ids, schema=self.schema)
        return sorted(each for state in states for each in by_state.get(state, []))

    def note(self, ids: list[int], result: Any) -> None:
        self.changed.update(result.ids)
        skipped = {each: state.value for state, jobs in result.skipped.items() for each in jobs}
        for each in ids:
            what = "changed" if each in result.ids else skipped.get(each, "gone")
            self.visits.setdefault(each, []).append(what)


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch, worker_schema: str) -> Callable[[int], Mover]:
    """Return a function that lets a new mover act before each step."""
    next_step, run_step = bulk_steps.next_step, bulk_steps.run_step

    def hook(seed: int) -> Mover:
        mover = Mover(seed, worker_schema)

        def moving_next_step(*arguments: Any, **options: Any) -> Any:
            mover.move()
            return next_step(*arguments, **options)

        def noting_run_step(cursor: Any, call: Any, matching: Any, ids: Any, **options: Any) -> Any:
            result = run_step(cursor, call, matching, ids, **options)
            mover.note(ids, result)
            return result

        monkeypatch.setattr(bulk_steps, "next_step", moving_next_step)
        monkeypatch.setattr(bulk_steps, "run_step", noting_run_step)
        monkeypatch.setattr(bulk_steps, "STEP", 2)
        return mover

    return hook


def run(name: str, state: State) -> BulkProgress:
    action = ACTIONS[name]
    work = BulkAction(
        call=action.make_call({"priority": 5} if name == "reschedule" else {"reason": "why"}),
        alias="default",
        visible=lambda ids: ids,
        log=lambda *arguments: None,
    )
    ids = ids_subquery(Job.objects.filter(condition_of(Criteria(state=state, tasks=("send",)))), "default")
    assert ids is not None
    progress = bulk_action.begin("default", name, "1", action.states, ids)
    while not progress.is_finished:
        progress = work.run(progress)
    return progress


CASES = [
    ("run_now", State.ANY),
    ("run_now", State.SCHEDULED),
    ("run_next", State.ANY),
    ("retry", State.FAILING),
    ("retry", State.FAILED),
    ("reschedule", State.ANY),
    ("reschedule", State.READY),
    ("fail", State.RETRYING),
    ("delete", State.ANY),
    ("delete", State.SCHEDULED),
    ("cancel", State.ANY),
]


@pytest.mark.parametrize(("name", "state"), CASES)
def test_all_that_match__are_visited_whatever_becomes_of_them(
    hooked: Callable[[int], Mover], name: str, state: State
) -> None:
    action = ACTIONS[name]
    moves: Counter[str] = Counter()
    for seed in range(2):
        execute("delete from {schema}._private_jobs")
        for columns in KINDS.values():
            for _ in range(3):
                make_job("send", **columns)
        mover = hooked(seed)
        of_state = {State.ANY: action.states, State.FAILING: (State.RETRYING, State.FAILED)}.get(state, (state,))
        matching = set(mover.ids_in(*of_state))
        progress = run(name, state)

        assert set(mover.visits) == matching, "every job that matched was visited"
        assert set(mover.changed.values()) <= {1}, "none was changed twice"
        for job_id, visits in mover.visits.items():
            # A job that was running is visited again after all others; every other job is visited once.
            assert len(visits) == 1 or (len(visits) == 2 and visits[0] == State.RUNNING), (job_id, visits)
            # A job whose state allows the action was changed.
            assert visits[-1] in {"changed", "gone"} or State(visits[-1]) not in action.states, (job_id, visits)
        told = Counter(visits[-1] for visits in mover.visits.values())
        assert progress.found == len(matching)
        assert (progress.changed, progress.ended) == (told.pop("changed", 0), told.pop("gone", 0))
        assert dict(progress.skipped) == dict(told), "what was not changed is told, with the reason"
        moves += mover.moves
    assert len(moves) >= 5, "jobs were really moved"
