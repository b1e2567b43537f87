"""How many jobs a second a machine with any number of cores can run, from measured parts.

For N worker processes on C cores that workers and server share, in jobs a second:

    worker processes   N * r                  one process, alone on the machine, runs r jobs a second
    CPU                C / (w + s(N))         with s(N) = s(1) + g * (N - 1)
    log                disk / b
    connections        (max_connections - reserved) / k * r

w and s are the CPU seconds of worker and server for a job, g is what each further process adds to s because claims step
over the rows that other processes have locked, b is the bytes of write-ahead log, k the connections of a process. The
prediction is the smallest of them for the best N. Adding jobs has a limit of its own: commits that notify wait for each
other, so 1 / h transactions a second, where h is the time that a commit holds the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RESERVED_CONNECTIONS = 10


@dataclass(frozen=True, slots=True)
class Parts:
    """The measured parts, in seconds and bytes."""

    process_rate: float
    worker_cpu: float
    server_cpu: float
    server_growth: float
    written: float
    disk: float
    connections: float
    max_connections: int
    lock_held: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a machine can do, and the resource that limits it."""

    cores: int
    processes: int
    rate: float
    limits: dict[str, float]

    @property
    def first(self) -> str:
        """Return the resource that ends first."""
        return min(self.limits, key=lambda name: self.limits[name])


def limits(parts: Parts, cores: int, processes: int) -> dict[str, float]:
    """Return the jobs a second that each resource allows."""
    server = parts.server_cpu + parts.server_growth * (processes - 1)
    most_processes = (parts.max_connections - RESERVED_CONNECTIONS) / parts.connections
    return {
        "CPU": cores / (parts.worker_cpu + server),
        "write-ahead log": parts.disk / parts.written,
        "connections": most_processes * parts.process_rate,
        # The last: where another resource has the same limit, more processes do not help.
        "worker processes": processes * parts.process_rate,
    }


def predict(parts: Parts, cores: int) -> Prediction:
    """Return the prediction for the number of processes that is best, the smallest such number."""

    def prediction(processes: int) -> Prediction:
        found = limits(parts, cores, processes)
        return Prediction(cores, processes, min(found.values()), found)

    return max((prediction(number) for number in range(1, cores + 1)), key=lambda each: each.rate)


def added_transactions(parts: Parts) -> float:
    """Return how many transactions a second can add jobs and notify, whatever the number of cores."""
    return 1 / parts.lock_held


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the straight line through points, by least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / sum((x - mean_x) ** 2 for x, _ in points)
