"""Celery with Redis: processes or threads; the broker keeps jobs in memory, and a job is taken off before it runs."""

from __future__ import annotations

from benchmarks.commands import Command
from benchmarks.peers.peer import CPU, HTTP, HTTP_ASYNC, ORM, Peer, Place, Setting, left_in_redis

GRID: dict[str, list[Setting]] = {
    ORM: [
        {"pool": "prefork", "concurrency": 2, "prefetch": 4},
        {"pool": "prefork", "concurrency": 4, "prefetch": 100},
        {"pool": "threads", "concurrency": 10, "prefetch": 4},
    ],
    HTTP: [
        {"pool": "threads", "concurrency": 200, "prefetch": 1},
        {"pool": "threads", "concurrency": 200, "prefetch": 4},
    ],
    HTTP_ASYNC: [{"pool": "threads", "concurrency": 200, "prefetch": 4}],
    CPU: [
        {"pool": "prefork", "concurrency": 2, "prefetch": 1},
        {"pool": "prefork", "concurrency": 2, "prefetch": 4},
    ],
}


def commands(place: Place, work: str, setting: Setting) -> list[Command]:
    options = [
        f"--pool={setting['pool']}",
        f"--concurrency={setting['concurrency']}",
        f"--prefetch-multiplier={setting['prefetch']}",
        "--loglevel=INFO",
    ]
    return [place.module("celery", "--app=benchmarks.peers.celery.tasks", "worker", *options)]


LEFT = left_in_redis("LLEN celery", "HLEN unacked")
PEER = Peer("celery", "Celery with Redis", GRID, commands, LEFT, needs_redis=True)
