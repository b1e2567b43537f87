"""The same work without a queue: a loop with the same number of processes and threads. It is what a queue adds to."""

from __future__ import annotations

from benchmarks.commands import Command
from benchmarks.draining import Left
from benchmarks.peers.ours.definition import GRID
from benchmarks.peers.peer import Peer, Place, Setting


def commands(place: Place, work: str, setting: Setting) -> list[Command]:
    arguments = [work, place.variables["COUNT"], str(setting["processes"]), str(setting["at once"])]
    return [place.module("benchmarks.peers.bare.loop", *arguments)]


def left(place: Place) -> Left:
    """There is no queue: all is done when every job has reported its end."""
    return Left(any=lambda: False, count=lambda: 0)


PEER = Peer("bare", "a bare loop", GRID, commands, left)
