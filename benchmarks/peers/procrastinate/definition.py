"""Procrastinate: PostgreSQL, one event loop for each process, ``def`` tasks in threads."""

from __future__ import annotations

from benchmarks.commands import Command
from benchmarks.peers.peer import CPU, HTTP, HTTP_ASYNC, ORM, Peer, Place, Setting, left_by_sql, processes_of

GRID: dict[str, list[Setting]] = {
    ORM: [{"processes": 1, "concurrency": 10}, {"processes": 2, "concurrency": 5}, {"processes": 2, "concurrency": 10}],
    HTTP: [{"processes": 1, "concurrency": 200}, {"processes": 2, "concurrency": 100}],
    HTTP_ASYNC: [{"processes": 1, "concurrency": 200}, {"processes": 2, "concurrency": 100}],
    CPU: [{"processes": 2, "concurrency": 1}, {"processes": 2, "concurrency": 2}],
}


def commands(place: Place, work: str, setting: Setting) -> list[Command]:
    options = [f"--concurrency={setting['concurrency']}", "--delete-jobs=always"]
    return processes_of(place.module("django", "procrastinate", "worker", *options), setting)


LEFT = left_by_sql("select count(*) from procrastinate_jobs where status in ('todo', 'doing')")
PEER = Peer("procrastinate", "Procrastinate", GRID, commands, LEFT, table="procrastinate_jobs")
