"""pgqueuer: PostgreSQL, one event loop for each process; the entrypoints put blocking code into threads."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.commands import Command
from benchmarks.peers.peer import CPU, HTTP, HTTP_ASYNC, ORM, Peer, Place, Setting, left_by_sql, processes_of

GRID: dict[str, list[Setting]] = {
    ORM: [
        {"processes": 1, "batch": 10, "threads": 10},
        {"processes": 2, "batch": 10, "threads": 5},
        {"processes": 2, "batch": 100, "threads": 5},
    ],
    # It demands a limit of at least twice the batch.
    HTTP: [
        {"processes": 1, "batch": 100, "at once": 200, "threads": 200},
        {"processes": 2, "batch": 50, "at once": 100, "threads": 100},
    ],
    HTTP_ASYNC: [
        {"processes": 1, "batch": 100, "at once": 200, "threads": 1},
        {"processes": 2, "batch": 50, "at once": 100, "threads": 1},
    ],
    CPU: [{"processes": 2, "batch": 1, "threads": 1}, {"processes": 2, "batch": 10, "threads": 1}],
}


def commands(place: Place, work: str, setting: Setting) -> list[Command]:
    variables = {"BATCH": str(setting["batch"]), "THREADS": str(setting["threads"])}
    if "at once" in setting:
        variables["LIMIT"] = str(setting["at once"])
    here = replace(place, variables=place.variables | variables)
    return processes_of(here.module("benchmarks.peers.pgqueuer.worker"), setting)


PEER = Peer("pgqueuer", "pgqueuer", GRID, commands, left_by_sql("select count(*) from pgqueuer"), table="pgqueuer")
