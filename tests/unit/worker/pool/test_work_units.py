"""Claimed jobs as slots take them."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.pool.line import WorkUnit, interrupted, line_up, size_of, to_work_units
from tests.support.slot import make_claim


def test_remove_waiting__leaves_the_slot_the_next_job_not_a_later_one() -> None:
    """The slot takes a job while another thread removes them one by one."""
    first, second, third = (make_claim(id=number) for number in (1, 2, 3))
    started: list[Claim] = []

    class Shared(list[Claim]):
        def pop(self, index: Any = -1) -> Claim:
            taken = super().pop(index)
            if not started:
                started.append(super().pop())
            return taken

    removed = WorkUnit(Shared([third, second, first]), HeldQueue(7, "w/1"), 0.0).remove_waiting()
    assert started == [first]
    assert removed == [third, second]


def test_jobs_of_a_queue__are_one_work_unit_in_their_order() -> None:
    claims = [make_claim(id=number, queue_id=queue) for number, queue in enumerate([None, 7, None, 7, 8], 1)]
    units = list(to_work_units(claims))
    assert [[claim.id for claim in reversed(unit.claims)] for unit in units] == [[1], [2, 4], [3], [5]]
    assert [unit.queue and unit.queue.id for unit in units] == [None, 7, None, 8]


def test_line__has_a_work_unit_for_each_queue_and_other_jobs_as_they_are() -> None:
    claims = [make_claim(id=number, queue_id=queue) for number, queue in enumerate([None, 7, None, 7, 8], 1)]
    first, seven, third, eight = line_up(claims)
    assert (first, third) == (claims[0], claims[2])
    assert isinstance(seven, WorkUnit)
    assert (seven.claims, seven.queue) == ([claims[3], claims[1]], HeldQueue(7, claims[1].token))
    assert isinstance(eight, WorkUnit)
    assert eight.claims == [claims[4]]
    assert line_up(claims[:1]) == claims[:1]


def test_size__is_the_number_of_characters_of_all_payloads() -> None:
    assert size_of([make_claim(payload_text="[1]"), make_claim(payload_text='"é"')]) == 6


def test_interrupted__empties_work_units_that_never_began() -> None:
    unit = WorkUnit([make_claim(id=1)], None, 0.0)
    (outcome,) = interrupted([unit])
    assert (outcome.claim.id, outcome.has_begun, unit.claims) == (1, False, [])
