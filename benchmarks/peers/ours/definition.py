"""This package as a peer of the real jobs: with its log in a file, statistics, and a receiver of a signal."""

from __future__ import annotations

from benchmarks.commands import Command
from benchmarks.database import SCHEMA
from benchmarks.peers.peer import CPU, HTTP, HTTP_ASYNC, ORM, Peer, Place, Setting, left_by_sql

_AT_ONCE_200: list[Setting] = [
    {"processes": 1, "at once": 200},
    {"processes": 2, "at once": 100},
    {"processes": 4, "at once": 50},
]
# The same cells as the bare loop, which each of them is compared with.
GRID: dict[str, list[Setting]] = {
    ORM: [{"processes": 1, "at once": 10}, {"processes": 2, "at once": 5}, {"processes": 2, "at once": 10}],
    HTTP: _AT_ONCE_200,
    HTTP_ASYNC: _AT_ONCE_200,
    CPU: [{"processes": 2, "at once": 1}, {"processes": 2, "at once": 10}],
}


def commands(place: Place, work: str, setting: Setting) -> list[Command]:
    options = [f"--processes={setting['processes']}", f"--concurrency={setting['at once']}"]
    return [place.module("django", "runworker", *options)]


PEER = Peer(
    "ours",
    "ours",
    GRID,
    commands,
    left_by_sql(f"select count(*) from {SCHEMA}._private_jobs"),
    table=f"{SCHEMA}._private_jobs",
)
