"""The capacity model: each resource is the limit where it is the scarcest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.capacity import model

PARTS = model.Parts(
    process_rate=100_000,
    worker_cpu=10e-6,
    server_cpu=30e-6,
    server_growth=0.0,
    written=100,
    disk=1e9,
    connections=5,
    max_connections=1010,
    lock_held=500e-6,
)


@pytest.mark.parametrize(("cores", "processes"), [(2, 1), (4, 1), (8, 2), (64, 16)])
def test_predict__divides_the_cores_between_workers_and_server(cores: int, processes: int) -> None:
    found = model.predict(PARTS, cores)
    assert found.processes == processes
    assert found.rate == pytest.approx(cores / 40e-6)


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
        ({"max_connections": 20, "connections": 5, "process_rate": 10.0}, "connections"),
        ({"process_rate": 10.0}, "worker processes"),
    ],
)
def test_predict__names_the_resource_that_ends_first(changed: dict[str, float], first: str) -> None:
    found = model.predict(replace(PARTS, **changed), 16)  # type: ignore[arg-type]
    assert found.first == first
    assert found.rate == found.limits[first]


def test_added_transactions__follow_one_another() -> None:
    assert model.added_transactions(PARTS) == pytest.approx(2000)


def test_slope__is_that_of_the_line_through_the_points() -> None:
    assert model.slope([(1, 10), (2, 12), (3, 14)]) == pytest.approx(2)
