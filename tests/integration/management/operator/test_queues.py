"""manage.py graphile_worker queues."""

from __future__ import annotations

import pytest

from django_graphile_worker.sql.inspection import queue_depths
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago
from tests.support.operating import LIVE, operate

pytestmark = pytest.mark.django_db


def test_queues__tell_holder_and_depth() -> None:
    make_queue("empty")
    make_queue("held", locked_by=LIVE)
    for _ in range(3):
        make_job("a", queue_name="held", run_at=minutes_ago(1))
    make_job("b", queue_name="held", run_at=minutes_ago(-9))
    make_job("b", queue_name="held", locked_by=LIVE)
    make_failed_job("b", queue_name="held")
    held, empty = operate("queues", "--json").json
    assert (held["queue_name"], held["locked_by"], held["waiting"], held["is_capped"]) == ("held", LIVE, 4, False)
    assert (empty["queue_name"], empty["locked_by"], empty["waiting"]) == ("empty", None, 0)
    assert [queue["queue_name"] for queue in operate("queues", "--held", "--json").json] == ["held"]
    assert [queue["queue_name"] for queue in operate("queues", "--queue", "empty", "--json").json] == ["empty"]


def test_queues__are_counted_up_to_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_depths, "MAX_COUNTED", 2)
    for _ in range(3):
        make_job("a", queue_name="deep")
    assert "2+" in operate("queues").out.split()
