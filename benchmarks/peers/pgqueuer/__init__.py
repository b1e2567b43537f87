"""pgqueuer: PostgreSQL, one event loop for each process, ``def`` entrypoints in threads."""

from __future__ import annotations

from benchmarks.commands import Command
from benchmarks.peers.peer import CPU, HTTP, HTTP_ASYNC, ORM, Peer, Place, Setting, left_by_sql, processes_of

GRID: dict[str, list[Setting]] = {
    ORM: [{"processes": 1, "batch": 10}, {"processes": 2, "batch": 10}, {"processes": 2, "batch": 100}],
    HTTP: [{"processes": 1, "batch": 200}, {"processes": 2, "batch": 100}],
    HTTP_ASYNC: [{"processes": 1, "batch": 200}, {"processes": 2, "batch": 100}],
    CPU: [{"processes": 2, "batch": 1}, {"processes": 2, "batch": 10}],
}


def commands(place: Place, work: str, setting: Setting) -> list[Command]:
    options = [f"--batch-size={setting['batch']}"]
    return processes_of(place.module("pgqueuer", "run", "benchmarks.peers.pgqueuer.tasks:main", *options), setting)


PEER = Peer("pgqueuer", "pgqueuer", GRID, commands, left_by_sql("select count(*) from pgqueuer"))
