"""Claimed jobs as slots take them."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.work_units import WorkUnit, interrupted, to_work_units
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


def test_interrupted__empties_work_units_that_never_began() -> None:
    unit = WorkUnit([make_claim(id=1)], None, 0.0)
    (outcome,) = interrupted([unit])
    assert (outcome.claim.id, outcome.has_begun, unit.claims) == (1, False, [])
