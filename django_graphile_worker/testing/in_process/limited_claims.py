"""The claims of limited jobs by the in-process worker: one after the other, at the time of the test."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.limits import LimitedClaimed, claim_limited, free_places
from django_graphile_worker.worker.limited.keeper import LimitedTasks, Sorter

if TYPE_CHECKING:
    from django_graphile_worker.testing.in_process.in_process_worker import InProcessWorker

# How often a claim is repeated that found only lanes whose keys are full.
MOST_CLAIMS = 1_000


class LimitedSingleClaims:
    """Claims limited jobs one by one, and frees the place of each when it has ended."""

    def __init__(self, worker: InProcessWorker, tokens: Iterator[str]) -> None:
        self._database = worker.caller_database
        self._tokens = tokens
        self._now = worker.now
        self._tasks = LimitedTasks(worker.directory, worker.settings.limits)
        # The transaction and the connection belong to the test: the server must not end it, however long a debugger
        # stops it.
        self._sorter = Sorter(worker, self._database, self._tasks, idle_seconds=None, close_connections=_leave_open)

    @property
    def task_ids(self) -> Collection[int]:
        """The ids of the limited tasks."""
        return self._tasks.ids

    def claim(self, forbidden_flags: Sequence[str]) -> LimitedClaimed:
        """Claim the limited job that a worker would start next, if one may start."""
        found = self._sorter.sort()
        while found.has_more:
            found = self._sorter.sort()
        claimed = self._claim(forbidden_flags)
        for _ in range(MOST_CLAIMS):
            if claimed.claims or not claimed.has_more:
                break
            claimed = self._claim(forbidden_flags)
        return claimed

    def free(self, claims: Sequence[Claim]) -> None:
        """Free the places of jobs that have ended, and the queues of all of them."""
        ended = [claim for claim in claims if self._tasks.is_limited(claim.task_id)]
        queue_ids = [claim.queue_id for claim in claims if claim.queue_id is not None]
        if ended or queue_ids:
            with self._database.cursor() as cursor:
                free_places(cursor, ended, schema=self._database.schema, queue_ids=queue_ids)

    def _claim(self, forbidden_flags: Sequence[str]) -> LimitedClaimed:
        with self._database.cursor() as cursor:
            return claim_limited(
                cursor,
                schema=self._database.schema,
                token=next(self._tokens),
                expiries=self._tasks.expiries,
                other_tasks=self._tasks.others,
                numbers=self._tasks.numbers,
                max_jobs=1,
                forbidden_flags=forbidden_flags,
                now=self._now(),
                clock=self._now(),
            )


def _leave_open() -> None:
    pass
