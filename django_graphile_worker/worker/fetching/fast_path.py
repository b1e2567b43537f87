"""Whether the cheap look at a few jobs is worth it, and the look itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from django_graphile_worker.sql.claims import Claimed
from django_graphile_worker.sql.fast_claim import NOTHING, PLANNER, Glance, glance_statement, take_few
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.prepared import PreparedStatement

# A look that takes longer walks over what is long gone and cannot be vacuumed away; the whole claim knows a way round.
LONGEST_GLANCE = 0.02
# After such a one, how many times as long there is none.
REST = 100


class FastClaim:
    """Finds the one job that an idle worker was told of, as fast as can be."""

    def __init__(self, database: Database, *, schema: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._statement = PreparedStatement(database, "gw_glance", glance_statement(schema), settings=PLANNER)
        self._clock = clock
        # A fleet hears of a job together and one of them gets it: those that come too late look twice.
        # So only who was lucky the last time tries it this way again.
        self._is_promising = True
        self._rests_until = clock()

    def __call__(
        self, max_jobs: int, *, token: str, task_ids: bytes, forbidden_flags: Sequence[str], now: datetime | None
    ) -> Glance:
        began = self._clock()
        if not self._is_promising or not self._statement.is_possible or began < self._rests_until:
            return NOTHING
        found = take_few(
            self._statement,
            token=token,
            task_ids=task_ids,
            max_jobs=max_jobs,
            forbidden_flags=forbidden_flags,
            now=now,
        )
        self._is_promising = bool(found.claims)
        ended = self._clock()
        if ended - began > LONGEST_GLANCE:
            self._rests_until = ended + REST * (ended - began)
        return found

    def learn_from(self, claimed: Claimed) -> None:
        """Would a glance have done?"""
        if claimed.claims and not claimed.has_more:
            self._is_promising = all(claim.queue_id is None for claim in claimed.claims)
