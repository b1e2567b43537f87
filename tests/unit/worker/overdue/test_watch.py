"""The supervisor's watch over runs that their own process cannot stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_graphile_worker.worker.overdue.run_records import RunRecordsWriter, WorkerRecords
from django_graphile_worker.worker.overdue.watch import OverdueWatch
from tests.support.slot import TOKEN, make_claim

GRACE = 0.5


class World:
    """A watch with a clock that the test sets, and the records of the watched process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The handler of the signal stays with the process, which is that of the tests here.
        monkeypatch.setattr("django_graphile_worker.worker.overdue.run_records.STACKS_SIGNAL", None)
        self.now = 100.0
        self.watch = OverdueWatch(GRACE, clock=lambda: self.now)
        self.writer = RunRecordsWriter(self.watch.records.path)
        self.records: WorkerRecords = self.writer.of_worker(2)

    def found(self, now: float) -> list[int]:
        self.now = now
        return [run.job_id for run in self.watch.find()]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(monkeypatch)
    yield world
    world.watch.close()


def test_a_run_that_stays_past_its_deadline__is_found_after_twice_the_grace(world: World) -> None:
    world.records.begin(make_claim(id=7), 110.0)
    assert [world.found(now) for now in (100.0, 110.4, 110.6, 110.9, 111.2)] == [[], [], [], [], [7]]
    (run,) = world.watch.find()
    assert (run.token, run.worker, run.deadline) == (TOKEN, 2, 110.0)


def test_a_run_that_its_process_has_stopped__is_not_found(world: World) -> None:
    number = world.records.begin(make_claim(id=7), 110.0)
    assert world.found(110.6) == []
    world.records.end(number)
    assert world.found(120.0) == []


def test_a_process_that_was_suspended__gets_its_time_after_that(world: World) -> None:
    number = world.records.begin(make_claim(id=7), 110.0)
    assert world.found(500.0) == [], "the process may continue at this moment"
    world.records.end(number)
    assert world.found(500.6) == []


def test_a_new_run_in_the_same_record__is_another_run(world: World) -> None:
    number = world.records.begin(make_claim(id=7), 110.0)
    assert world.found(110.6) == []
    world.records.end(number)
    assert world.records.begin(make_claim(id=8), 110.1) == number
    assert world.found(111.2) == []
    assert world.found(111.8) == [8]


def test_more_runs_than_there_are_records__are_not_watched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.writer._free.clear()
    assert world.records.begin(make_claim(id=7), 110.0) == -1
    assert world.found(200.0) == []


def test_worker_ids__are_known_to_the_supervisor(world: World) -> None:
    world.writer.of_worker(0).note_worker("django-worker-a")
    world.records.note_worker("django-worker-b")
    world.records.note_worker("django-worker-c")
    assert world.watch.records.worker_ids()[:4] == ["django-worker-a", "", "django-worker-c", ""]
