"""The capacity model: each resource is the limit where it is the scarcest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.capacity import model

PARTS = model.Parts(
    worker_cpu=10e-6,
    server_cpu=30e-6,
    server_growth=0.0,
    written=100,
    disk=1e9,
    connections=5,
    max_connections=1010,
    lock_held=500e-6,
)


def test_predict__divides_the_cores_between_workers_and_server() -> None:
    found = model.predict(PARTS, 4)
    assert found.first == "CPU" or found.limits["worker processes"] == found.limits["CPU"]
    assert (found.processes, found.rate) == (1, pytest.approx(100_000))


def test_predict__counts_what_processes_cost_each_other() -> None:
    contended = model.predict(replace(PARTS, server_growth=10e-6), 64)
    assert contended.rate < model.predict(PARTS, 64).rate
    # More processes than are best would cost more than they give.
    limits = model.limits(replace(PARTS, server_growth=10e-6), 64, contended.processes + 1)
    assert min(limits.values()) <= contended.rate


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({"disk": 1e6}, "write-ahead log"),
        ({"max_connections": 11, "connections": 20}, "connections"),
        ({"worker_cpu": 1.0}, "worker processes"),
    ],
)
def test_predict__names_the_resource_that_ends_first(changed: dict[str, float], first: str) -> None:
    parts = replace(PARTS, **changed)  # type: ignore[arg-type]
    found = model.predict(parts, 2 if first == "worker processes" else 16)
    limits = found.limits
    assert found.rate == pytest.approx(limits[found.first])
    assert found.first == first or limits[first] == pytest.approx(limits[found.first], rel=0.01)


def test_added_transactions__follow_one_another() -> None:
    assert model.added_transactions(PARTS) == pytest.approx(2000)


def test_slope__is_that_of_the_line_through_the_points() -> None:
    assert model.slope([(1, 10), (2, 12), (3, 14)]) == pytest.approx(2)
