"""Where claims begin to read the backlog."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker.sql.claims import START, Claim, Claimed, Continuation
from django_graphile_worker.worker.fetching.scan import END, MAX_PRIORITIES, MAX_REST, MIN_REST, REST, Scan

TERMS = (("task",), ())
SEEN_UNTIL = "2026-01-01T00:00:00+00:00"


def place(priority: int, run_at: str = "2025-12-31T00:00:00+00:00", job_id: int = 7) -> dict[str, Any]:
    return {"priority": priority, "run_at": run_at, "id": job_id, "queued_run_at": run_at, "queued_id": 0}


def continuation(*places: dict[str, Any], queue: int | None = None, has_more: bool = True) -> Continuation:
    """Return that of a claim that stopped at the last place; without more jobs, of one that saw everything."""
    return Continuation(list(places), queue, places[-1]["priority"] if has_more else END, SEEN_UNTIL)


def answer(*places: dict[str, Any], jobs: int = 0, queue: int | None = None, **more: Any) -> Claimed:
    claims: list[Claim] = [Claim._make([None] * len(Claim._fields))] * jobs
    options = {"has_more": False, "seconds_until_next": None, **more}
    stop = continuation(*places, queue=queue, has_more=options["has_more"])
    return Claimed(claims=claims, continuation=stop, **options)


FULL: dict[str, Any] = {"has_more": True, "jobs": 10}
CUT: dict[str, Any] = {"has_more": True, "is_cut": True}


class Worker:
    """Claims that take so long, one after the other."""

    def __init__(self) -> None:
        self.scan = Scan()
        self.now = 1000.0

    def claim(self, claimed: Claimed, seconds: float = 0.001, terms: Any = TERMS) -> Continuation:
        """Return where the claim went on."""
        began = self.now
        behind = self.scan.behind(began, terms)
        self.now += seconds
        self.scan.note(replace(claimed, seconds=seconds), ended=self.now)
        return behind

    def rest(self) -> float:
        """Return for how many seconds claims would look only at what is new."""
        later = copy.deepcopy(self)
        if later.claim(answer(), seconds=0.0) == START:
            return 0.0
        return later.scan.until_next_pass(later.now) or 0.0


@pytest.fixture
def worker() -> Worker:
    return Worker()


def make_slow(worker: Worker) -> None:
    """Make the last pass a slow one: the quicker of two passes counts."""
    worker.claim(answer(), seconds=60)
    worker.scan.begin_again()


def priorities(behind: Continuation) -> dict[int, str]:
    return {place["priority"]: place["run_at"] for place in behind.places}


def test_full_claim__is_followed_by_claims_behind_it_for_a_moment(worker: Worker) -> None:
    worker.claim(answer(place(0), **FULL))
    behind = worker.claim(answer(place(0, job_id=8), **FULL))
    assert behind == continuation(place(0))
    assert worker.claim(answer(place(0, job_id=9), **FULL)) == continuation(place(0, job_id=8))
    worker.now += MIN_REST
    assert worker.claim(answer(place(0), **FULL)) == START


def test_end_of_a_backlog__is_followed_by_a_pass_at_once(worker: Worker) -> None:
    """A job may have come in before the place behind which the claim has looked."""
    worker.claim(answer(place(0), **FULL))
    worker.claim(answer(place(0)))
    assert not worker.scan.has_seen_all
    assert worker.scan.until_next_pass(worker.now) == 0
    assert worker.claim(answer(place(0))) == START
    assert worker.scan.has_seen_all


def test_priorities_that_a_full_claim_did_not_reach__are_read_from_their_start(worker: Worker) -> None:
    worker.claim(answer(place(0), place(5)))
    worker.claim(answer(place(0), **FULL))
    assert priorities(worker.claim(answer(place(0), **FULL))) == {0: place(0)["run_at"]}


def test_claim_that_was_cut__is_continued_until_everything_was_seen(worker: Worker) -> None:
    """However long that takes: only what all claims of the pass took together decides when the next begins."""
    make_slow(worker)
    worker.claim(answer(place(0), queue=500, **CUT), seconds=0.5)
    behind = worker.claim(answer(place(0, job_id=8), queue=900, **CUT), seconds=0.2)
    assert behind == continuation(place(0), queue=500)
    assert worker.claim(answer(place(0)), seconds=0.1) == continuation(place(0, job_id=8), queue=900)
    assert worker.rest() == pytest.approx(REST * 0.8)
    assert worker.claim(answer(place(0))) != START


def test_steps_over_held_queues__go_on_after_full_claims(worker: Worker) -> None:
    """Else a free queue behind thousands of held ones would wait as long as other jobs keep claims full."""
    assert worker.claim(answer(place(0), queue=1000, **FULL)) == START
    assert worker.claim(answer(place(0), queue=2000, **FULL)) == continuation(place(0), queue=1000)
    worker.now += MIN_REST
    assert worker.claim(answer(place(0))) == START._replace(queue=2000)
    # The queues before that were not seen.
    assert not worker.scan.has_seen_all
    assert worker.scan.until_next_pass(worker.now) == 0
    assert worker.claim(answer(place(0))) == START
    assert worker.scan.has_seen_all


def test_slow_pass__is_followed_by_claims_of_what_is_new(worker: Worker) -> None:
    make_slow(worker)
    worker.claim(answer(place(3), **FULL), seconds=1)
    worker.now += MAX_REST
    worker.claim(answer(place(0, "2025-12-31T23:00:00+00:00")), seconds=0.05)

    assert worker.rest() == pytest.approx(REST * 0.05)
    # Also on the priorities on which it found nothing, and on the usual one.
    assert priorities(worker.claim(answer())) == {3: SEEN_UNTIL, 0: "2025-12-31T23:00:00+00:00"}
    worker.now += REST * 0.05
    assert worker.claim(answer()) == START


def test_cancelled_claim__is_followed_by_claims_behind_the_last_place(worker: Worker) -> None:
    worker.claim(answer(place(0), **FULL))
    worker.now += 1
    began = worker.now
    assert worker.scan.behind(began, TERMS) == START
    worker.now += 5
    worker.scan.note_cancelled(began=began, ended=worker.now)
    assert worker.rest() == pytest.approx(REST * 5)
    assert worker.claim(answer(place(0))) == continuation(place(0))._replace(seen_priority=END)


def test_cancelled_claim_behind_a_place__is_followed_by_claims_of_the_last_minute(worker: Worker) -> None:
    """There was too much behind the place, as when others ran many jobs there under a held snapshot."""
    make_slow(worker)
    worker.claim(answer(place(0), **FULL), seconds=1)
    assert worker.scan.behind(worker.now, TERMS) == continuation(place(0))
    worker.scan.note_cancelled(began=worker.now, ended=worker.now + 5)
    behind = worker.scan.behind(worker.now + 5, TERMS)
    assert behind.seen_priority == END
    (run_at,) = priorities(behind).values()
    assert timedelta(seconds=50) < datetime.now(UTC) - datetime.fromisoformat(run_at) < timedelta(seconds=100)


def test_first_claim_that_is_cancelled__is_followed_by_claims_of_the_last_minute(worker: Worker) -> None:
    worker.scan.behind(worker.now, TERMS)
    worker.scan.note_cancelled(began=worker.now - 30, ended=worker.now)
    (run_at,) = priorities(worker.scan.behind(worker.now, TERMS)).values()
    assert timedelta(seconds=50) < datetime.now(UTC) - datetime.fromisoformat(run_at) < timedelta(seconds=100)
    assert worker.rest() == 60


def test_places__are_kept_of_the_latest_priorities(worker: Worker) -> None:
    for priority in range(40):
        worker.claim(answer(place(priority)))
    make_slow(worker)
    worker.claim(answer(), seconds=1)
    assert list(priorities(worker.claim(answer()))) == list(range(40 - MAX_PRIORITIES, 40))


def test_jobs_that_others_have_locked__are_looked_for_again_soon(worker: Worker) -> None:
    worker.claim(answer(place(0), is_waiting=True, **CUT))
    worker.claim(answer(place(0)))
    assert worker.scan.until_next_pass(worker.now) == pytest.approx(MIN_REST)
    worker.now += MIN_REST
    assert worker.claim(answer(place(0))) == START
    assert worker.scan.until_next_pass(worker.now) is None


def test_other_terms__do_not_restart_a_pass_that_is_under_way(worker: Worker) -> None:
    worker.claim(answer(place(0), **CUT))
    other = (("task",), ("a flag",))
    assert worker.claim(answer(place(0), **CUT), terms=other) == continuation(place(0))
    worker.claim(answer(place(0)), terms=other)
    assert worker.claim(answer(place(0)), terms=other) == START
