"""Divides schedules into parts, each of which is fired by one statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django_graphile_worker.sql.schedules.firing import Move
from django_graphile_worker.worker.scheduling.refusals import Refusals

# How many schedules and jobs one statement fires, about: it takes a tenth of a second, for which they are locked.
MOST_AT_ONCE = 400


class _Part:
    def __init__(self) -> None:
        self.moves: list[Move] = []
        self.size = 0

    def add(self, move: Move) -> None:
        self.moves.append(move)
        self.size += max(len(move.jobs), 1)


def parts_of(moves: Iterable[Move], refusals: Refusals) -> Iterator[list[Move]]:
    """Divide schedules into parts, by the number of their jobs.

    Jobs with keys, which others may have locked, are kept apart, and so are schedules that could not be fired before:
    one of them would be the failure of its whole part.
    """
    parts = [_Part() for _ in range(3)]
    for move in moves:
        kind = 2 if move.schedule.id in refusals else int(any(job.job_key is not None for job in move.jobs))
        parts[kind].add(move)
        if parts[kind].size >= MOST_AT_ONCE:
            yield parts[kind].moves
            parts[kind] = _Part()
    yield from (part.moves for part in parts if part.moves)
