"""The line of a pool, and what is removed from it because it waits too long."""

from __future__ import annotations

import pytest

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.pool.line import Line, WorkUnit
from tests.support.slot import make_claim


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [0.0]
    monkeypatch.setattr("django_graphile_worker.worker.pool.line.time.monotonic", lambda: times[0])
    return times


def fill(line: Line, clock: list[float], at: float, *ids: int) -> None:
    clock[0] = at
    line.extend([make_claim(id=number) for number in ids])


def removed_ids(line: Line, horizon: float) -> list[int]:
    return [claim.id for unit in line.remove(horizon) for claim in unit.claims]


def test_removal__takes_the_groups_that_have_waited_long_enough(clock: list[float]) -> None:
    line = Line()
    fill(line, clock, 1.0, 1, 2, 3)
    fill(line, clock, 2.0, 4, 5)
    fill(line, clock, 3.0, 6)
    line.waiting.popleft()
    assert removed_ids(line, 0.9) == []
    assert removed_ids(line, 2.0) == [2, 3, 4, 5]
    assert len(line) == 1
    assert removed_ids(line, 3.0) == [6]
    assert removed_ids(line, 9.0) == []


def test_removal__returns_work_units_as_they_are_and_jobs_with_their_time(clock: list[float]) -> None:
    clock[0] = 5.0
    unit = WorkUnit([make_claim(id=2)], HeldQueue(7, "w/1"), 4.0)
    line = Line()
    line.extend([make_claim(id=1), unit])
    alone, queued = line.remove(5.0)
    assert (alone.claims, alone.queue, alone.submitted_at) == ([make_claim(id=1)], None, 5.0)
    assert queued is unit
