"""Claimed jobs as slots take them."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.pool.line import WorkUnit, line_up
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


def test_line__has_a_work_unit_for_each_queue_and_other_jobs_as_they_are() -> None:
    claims = [make_claim(id=number, queue_id=queue) for number, queue in enumerate([None, 7, None, 7, 8], 1)]
    first, seven, third, eight = line_up(claims)
    assert (first, third) == (claims[0], claims[2])
    assert isinstance(seven, WorkUnit)
    assert (seven.claims, seven.queue) == ([claims[3], claims[1]], HeldQueue(7, claims[1].token))
    assert isinstance(eight, WorkUnit)
    assert eight.claims == [claims[4]]
    assert line_up(claims[:1]) == claims[:1]
