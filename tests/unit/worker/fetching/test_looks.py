"""What part of the backlog the next claim reads."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.sql.claims import Claim, Claimed, End
from django_graphile_worker.worker.fetching import looks
from django_graphile_worker.worker.fetching.looks import WHOLE, Look, Looks
from django_graphile_worker.worker.fetching.slices import LOOKS_PER_TURN

MANY, FEW = looks.MANY_PAGES * 2, 10
# The server's clock at the start; the worker's own clock starts at zero.
SERVER = 1_000_000.0


def claim(run_at: float, *, priority: int = 0, job_id: int = 1, queue_id: int | None = None) -> Claim:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    return Claim(**values | {"id": job_id, "priority": priority, "run_at_epoch": run_at, "queue_id": queue_id})


class Stage:
    """A worker that claims at moments of its own clock."""

    def __init__(self) -> None:
        self.looks = Looks()
        self.now = 0.0
        # The pages that a look at a slice reads, and the seconds that it takes.
        self.slice_pages = looks.MANY_PAGES // 3
        self.slice_takes = 0.004

    def claims(self, *jobs: Claim, pages: int | None = FEW, max_jobs: int = 10, **answer: Any) -> Look:
        """Choose, and note an answer with these jobs."""
        look = self.looks.choose(self.now)
        defaults: dict[str, Any] = {
            "has_more": False,
            "levels": [0],
            "looked_at": SERVER + self.now,
            "seconds_until_next": None,
        }
        answer = defaults | answer
        answer.setdefault("queued_floors", [None] * len(answer["levels"]))
        began, self.now = self.now, self.now + (self.slice_takes if look.is_slice else 0.001)
        claimed = Claimed(claims=list(jobs), pages=self.slice_pages if look.is_slice else pages, **answer)
        self.looks.note(look, claimed, began=began, ended=self.now, max_jobs=max_jobs)
        return look

    def claims_from_floors(self, **answer: Any) -> Look:
        """Claim until it is no look at a slice."""
        while (look := self.claims(**answer)).is_slice:
            pass
        return look

    def slows_down(self, *jobs: Claim, **answer: Any) -> None:
        for _ in range(2):
            self.claims(*jobs, pages=MANY, **answer)
            self.now += looks.WHOLE_LOOK_INTERVAL * 1.1
        assert not self.looks.are_whole


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_claims__read_everything_while_that_is_quick(stage: Stage) -> None:
    assert [stage.claims(claim(SERVER)) for _ in range(5)] == [WHOLE] * 5
    assert stage.looks.until_next(stage.now) is None


def test_claim__resumes_behind_the_last_job_without_a_queue_for_a_moment(stage: Stage) -> None:
    stage.claims(claim(SERVER, job_id=7), claim(SERVER + 1, queue_id=3), has_more=True, queued_floors=[SERVER - 5])
    look = stage.claims(claim(SERVER, job_id=9), has_more=True)
    assert look.is_resumed
    assert look.floors == ((0, SERVER, 7, SERVER - 5),)
    stage.now += looks.WHOLE_LOOK_INTERVAL + 0.01
    assert stage.claims() == WHOLE


@pytest.mark.parametrize("answer", [{"is_hidden": True}, {"walk": {"kind": 2}}])
def test_claim_that_resumes__passes_over_jobs_whose_queues_were_all_held(stage: Stage, answer: dict[str, Any]) -> None:
    held = answer | {"has_more": True, "queued_floors": [SERVER - 5]}
    assert stage.claims(claim(SERVER), **held).has_queues
    assert not stage.claims(claim(SERVER), has_more=True).has_queues
    assert not stage.claims(claim(SERVER), has_more=True).has_queues
    stage.now += looks.WHOLE_LOOK_INTERVAL + 0.01
    assert stage.claims(claim(SERVER), **held).has_queues, "a queue may have become free"


@pytest.mark.parametrize(
    ("jobs", "answer"),
    [
        ([claim(SERVER), claim(SERVER, queue_id=3)], {"is_hidden": True, "queued_floors": [SERVER]}),
        ([claim(SERVER)], {"queued_floors": [SERVER]}),
        ([claim(SERVER)], {"is_hidden": True, "queued_floors": [None]}),
        ([claim(SERVER)], {"is_hidden": True, "queued_floors": ["-Infinity"]}),
    ],
    ids=["a queue was free", "few jobs", "only flags", "no look at queues"],
)
def test_claim_that_resumes__reads_jobs_in_queues_that_may_be_free(
    stage: Stage, jobs: list[Claim], answer: dict[str, Any]
) -> None:
    stage.claims(*jobs, has_more=True, **answer)
    look = stage.claims(claim(SERVER), has_more=True)
    assert look.is_resumed
    assert look.has_queues


def test_one_claim_of_many_pages__changes_nothing(stage: Stage) -> None:
    """It has marked the entries, unless a snapshot is held."""
    for pages in (MANY, FEW, MANY):
        stage.claims(pages=pages)
    assert stage.looks.are_whole


def test_server_that_does_not_count_pages__changes_nothing(stage: Stage) -> None:
    for _ in range(3):
        stage.claims(pages=None)
    assert stage.looks.are_whole


def test_slow_claims__set_a_floor_behind_what_was_seen(stage: Stage) -> None:
    stage.slows_down()
    look = stage.claims_from_floors()
    ((priority, run_at, job_id, queued_run_at),) = look.floors
    assert (priority, job_id, look.ends) == (0, 0, ())
    assert run_at == queued_run_at == pytest.approx(SERVER - looks.LONGEST_OVERLAP, abs=0.5)


def test_floor__rises_with_each_look(stage: Stage) -> None:
    stage.slows_down()
    first = stage.claims_from_floors()
    stage.now += 5
    stage.claims_from_floors()
    assert stage.claims_from_floors().floors[0].run_at > first.floors[0].run_at + 4


def test_floor__stays_where_a_full_claim_ended(stage: Stage) -> None:
    stage.slows_down(claim(SERVER - 100), has_more=True, levels=[0, 5])
    stage.now += looks.WHOLE_LOOK_INTERVAL
    floors = stage.claims_from_floors().floors
    assert [floor.priority for floor in floors] == [0, 5]
    # Nothing was claimed on the second priority, so nothing is known of it.
    assert floors[1].run_at == -float("inf")
    stage.now += 100
    stage.claims_from_floors(levels=[0, 5])
    assert stage.claims_from_floors(levels=[0, 5]).floors[1].run_at > SERVER


def test_floor_of_queued_jobs__is_the_first_that_waits(stage: Stage) -> None:
    """A held queue has a job there, which must be found when the queue becomes free."""
    stage.slows_down(queued_floors=[SERVER - 500])
    (floor,) = stage.claims_from_floors().floors
    assert floor.queued_run_at == SERVER - 500
    assert floor.run_at > SERVER - 500


def test_slices__are_looked_at_in_between_and_take_a_fifth_of_the_time(stage: Stage) -> None:
    stage.slows_down()
    stage.slice_takes = 0.02
    stage.slice_pages = MANY
    in_slices = 0.0
    began = stage.now
    for _ in range(2000):
        before = stage.now
        if stage.claims().is_slice:
            in_slices += stage.now - before
        stage.now += 0.001
    assert 0.1 < in_slices / (stage.now - began) < 0.21
    assert stage.looks.until_next(stage.now) is not None


def test_slices__end_at_the_floor_of_each_priority(stage: Stage) -> None:
    """Behind it are jobs of the backlog that have not had their turn."""
    backlog = claim(SERVER - 3600, job_id=7)
    stage.slows_down(backlog, has_more=True, levels=[-5, 0], queued_floors=[None, SERVER - 1800])
    periods: list[tuple[End, ...]] = []
    while len(periods) < 20:
        look = stage.claims(backlog, has_more=True, levels=[-5, 0], queued_floors=[None, SERVER - 1800])
        if look.is_slice:
            periods.append(look.ends)
        stage.now += 0.05
    assert max(urgent.run_at for urgent, _ in periods) > SERVER - 10
    assert max(usual.run_at for _, usual in periods) == SERVER - 3600
    assert max(usual.queued_run_at for _, usual in periods) == pytest.approx(SERVER - 1800, abs=1e-5)


def test_floor__is_a_place_among_jobs_with_the_same_due_time(stage: Stage) -> None:
    stage.slows_down(claim(SERVER - 100, job_id=77), has_more=True)
    stage.now += looks.WHOLE_LOOK_INTERVAL
    (floor,) = stage.claims_from_floors().floors
    assert (floor.run_at, floor.id) == (SERVER - 100, 77)


def test_slices__begin_with_the_oldest_jobs(stage: Stage) -> None:
    stage.slows_down()
    periods: list[tuple[float, float]] = []
    while len(periods) < 4:
        look = stage.claims()
        if look.is_slice:
            periods.append((look.floors[0].run_at, look.ends[0].run_at))
        stage.now += 0.1
    assert -float("inf") in [start for start, _ in periods]


def test_cheap_slices__remove_the_floors(stage: Stage) -> None:
    stage.slows_down()
    stage.slice_pages = FEW
    for _ in range(100):
        stage.claims()
        stage.now += 0.1
    assert stage.looks.are_whole
    assert stage.claims() == WHOLE


def test_clock_that_is_set_back__removes_the_floors(stage: Stage) -> None:
    stage.slows_down()
    stage.claims_from_floors(looked_at=SERVER - 3600)
    assert stage.looks.are_whole


def test_overlap__is_shorter_if_it_makes_claims_slow(stage: Stage) -> None:
    stage.slows_down()
    for _ in range(200):
        stage.claims(pages=MANY)
    floor = next(iter(stage.claims_from_floors(pages=MANY).floors))
    assert SERVER + stage.now - floor.run_at < looks.SHORTEST_OVERLAP + 0.2


def test_floors__are_limited_in_number(stage: Stage) -> None:
    for priority in range(100):
        stage.claims(levels=[priority])
    stage.slows_down(levels=[100])
    assert len(stage.claims_from_floors(levels=[100]).floors) <= looks.MOST_FLOORS


def reach_a_slice(stage: Stage, *jobs: Claim, **answer: Any) -> None:
    """Claim from the floors, at least once, until it is the turn of a slice."""
    stage.claims_from_floors()
    while not stage.looks.choose(stage.now).is_slice:
        stage.claims(*jobs, **answer)
        stage.now += 0.001


def test_slice_with_more_jobs_than_a_claim_takes__is_continued_at_once(stage: Stage) -> None:
    """A transaction that took long has added many jobs before the floor: they do not wait for the share of slices."""
    stage.slows_down()
    reach_a_slice(stage)
    looked = [stage.claims(has_more=True) for _ in range(LOOKS_PER_TURN + 1)]
    assert all(look.is_slice for look in looked)
    # Another slice has its turn, and then the one with more jobs again, without a rest in between.
    assert stage.claims().is_slice
    assert stage.looks.until_next(stage.now) == 0.0
    assert stage.claims().is_slice
    # Nothing is left in the slice: the looks rest as usual.
    assert (stage.looks.until_next(stage.now) or 0.0) >= looks.REST * stage.slice_takes


def test_claim_from_the_floors__comes_in_between_after_a_while(stage: Stage) -> None:
    """Decided when a claim begins: the slot may have been busy since the last look ended."""
    stage.slows_down()
    reach_a_slice(stage)
    assert stage.claims(has_more=True).is_slice
    assert stage.claims(has_more=True).is_slice
    stage.now += looks.WHOLE_LOOK_INTERVAL
    assert not stage.claims().is_slice
    assert stage.claims(has_more=True).is_slice


def test_slice_with_many_slow_jobs__does_not_have_several_turns_in_a_row(stage: Stage) -> None:
    """Each look waits for a free slot, and the other slices must not wait for five jobs."""
    stage.slows_down(levels=[-5, 0])
    starts = []
    for _ in range(6):
        stage.now += 1.0
        starts.append(next_slice(stage, claim(SERVER - 50, job_id=7), has_more=True).floors[1].id)
    # Every second look begins behind the claimed job: it continues at the slice with many jobs.
    assert starts == [0, 7] * 3


@pytest.mark.parametrize("queue_id", [None, 3])
def test_claim_from_the_floors__has_every_second_turn_while_jobs_wait_there(stage: Stage, queue_id: int | None) -> None:
    stage.slows_down()
    backlog = claim(SERVER, job_id=8, queue_id=queue_id)
    reach_a_slice(stage, backlog, has_more=True)
    looked = [stage.claims(backlog, has_more=True).is_slice for _ in range(6)]
    assert looked == [True, False] * 3


def next_slice(stage: Stage, *jobs: Claim, **answer: Any) -> Look:
    """Claim from the floors until it is the turn of a look at a slice, and return that look, which claims the jobs."""
    while not stage.looks.choose(stage.now).is_slice:
        stage.claims(levels=[-5, 0])
        stage.now += 0.01
    return stage.claims(*jobs, levels=[-5, 0], **answer)


def test_look_at_a_slice_that_is_continued__begins_behind_the_last_claimed_job(stage: Stage) -> None:
    stage.slows_down(levels=[-5, 0])
    full = next_slice(stage, claim(SERVER - 50, job_id=7), claim(SERVER - 49, queue_id=3), has_more=True)
    continued = next_slice(stage, claim(SERVER - 50, job_id=9), has_more=True)
    assert continued.ends[1].run_at == pytest.approx(full.ends[1].run_at, abs=1e-5)
    assert continued.floors == (full.floors[0], (0, SERVER - 50, 7, full.floors[1].queued_run_at))
    for _ in range(LOOKS_PER_TURN - 1):
        next_slice(stage, claim(SERVER - 50, job_id=9), has_more=True)
    assert next_slice(stage).floors[1].id == 0
    assert next_slice(stage).floors[1][:3] == (0, SERVER - 50, 9), "another period was looked at in between"


def test_look_at_a_slice_with_jobs_in_queues__begins_at_its_start_again(stage: Stage) -> None:
    """Other jobs of the queues are before the last claimed job, and their queues become free."""
    stage.slows_down(levels=[-5, 0])
    queued: list[float | None] = [None, SERVER - 60]
    full = next_slice(stage, claim(SERVER - 50, job_id=7), has_more=True, queued_floors=queued)
    assert next_slice(stage, has_more=True).floors == full.floors


def test_slice_that_has_become_empty__is_read_from_its_beginning_in_the_next_round(stage: Stage) -> None:
    stage.slows_down(levels=[-5, 0])
    next_slice(stage, claim(SERVER - 50, job_id=7), has_more=True)
    next_slice(stage)
    assert [next_slice(stage).floors[1].id for _ in range(20)] == [0] * 20


def test_jobs_claimed_in_a_slice__divide_it(stage: Stage) -> None:
    """Thousands of jobs of a transaction that took long are before the floor, and their entries stay there."""
    stage.slows_down(levels=[-5, 0])
    for first in range(1, 100_000, 1_000):
        jobs = [claim(SERVER - 50, job_id=first + number) for number in range(1_000)]
        next_slice(stage, *jobs, has_more=True, max_jobs=1_000)
    periods = {(look.floors[1][1:3], look.ends[1][1:3]) for look in (next_slice(stage) for _ in range(200))}
    assert len([start for start, _ in periods if start[0] == SERVER - 50]) > 10


def test_jobs_claimed_in_a_slice__divide_it_whatever_is_claimed_from_the_floors_in_between(stage: Stage) -> None:
    stage.slows_down(levels=[-5, 0])
    for first in range(1, 100_000, 1_000):
        jobs = [claim(SERVER - 50, job_id=first + number) for number in range(1_000)]
        next_slice(stage, *jobs, has_more=True, max_jobs=1_000)
        later = [claim(SERVER - 1, job_id=200_000 + first + number) for number in range(1_000)]
        stage.now += looks.WHOLE_LOOK_INTERVAL
        assert not stage.claims(*later, levels=[-5, 0], has_more=True, max_jobs=1_000).is_slice
    periods = {(look.floors[1][1:3], look.ends[1][1:3]) for look in (next_slice(stage) for _ in range(200))}
    assert len([start for start, _ in periods if start[0] == SERVER - 50]) > 10


def test_periods__leave_no_gap_between_the_times_of_the_server(stage: Stage) -> None:
    """A period that ends before a time ends at the last id of the microsecond before."""
    stage.slows_down(claim(SERVER - 100, job_id=77), has_more=True)
    stage.slice_pages = MANY
    ends: list[tuple[float, int]] = []
    starts: set[tuple[float, int]] = set()
    for _ in range(500):
        is_slice = stage.looks.choose(stage.now).is_slice
        look = stage.claims() if is_slice else stage.claims(claim(SERVER - 100, job_id=77), has_more=True)
        if look.is_slice and look.ends[0].run_at > look.floors[0].run_at:
            starts.add((look.floors[0].run_at, look.floors[0].id))
            ends.append((look.ends[0].run_at, look.ends[0].id))
        stage.now += 0.05
    # Behind the floor is the backlog.
    assert max(ends) == (SERVER - 100, 77)
    times = {round(run_at * 1e6) for run_at, job_id in ends[:-2] if job_id == looks.LAST_ID}
    assert len(times) > 10
    following = {round(run_at * 1e6) for run_at, job_id in starts if not job_id and run_at > -float("inf")}
    assert {time + 1 for time in times} <= following
