"""dramatiq with Redis: threads in processes; a job is acknowledged after it ran."""

from __future__ import annotations

from benchmarks.commands import Command
from benchmarks.peers.peer import CPU, HTTP, HTTP_ASYNC, ORM, Peer, Place, Setting, left_in_redis

GRID: dict[str, list[Setting]] = {
    ORM: [{"processes": 1, "threads": 8}, {"processes": 2, "threads": 4}, {"processes": 2, "threads": 8}],
    HTTP: [{"processes": 1, "threads": 200}, {"processes": 2, "threads": 100}],
    HTTP_ASYNC: [{"processes": 1, "threads": 200}, {"processes": 2, "threads": 100}],
    CPU: [{"processes": 2, "threads": 1}, {"processes": 2, "threads": 8}],
}


def commands(place: Place, work: str, setting: Setting) -> list[Command]:
    options = [f"--processes={setting['processes']}", f"--threads={setting['threads']}"]
    return [place.module("dramatiq", "benchmarks.peers.dramatiq.tasks", *options)]


# The hash has every message until it is acknowledged.
LEFT = left_in_redis("HLEN dramatiq:default.msgs")
PEER = Peer("dramatiq", "dramatiq with Redis", GRID, commands, LEFT, needs_redis=True)
