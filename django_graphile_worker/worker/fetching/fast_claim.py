"""The fast claim, and the conditions under which a worker tries it. Part of the fast path, see ``fast_path``.

Separate from ``fast_path``, so that ``preconnect`` can run the statement before the worker's other modules are loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from django_graphile_worker.sql.claims import Claimed
from django_graphile_worker.sql.fast_claim import PLANNER, FastClaimed, claim_few, fast_claim_statement
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.prepared import PreparedStatement

# Seconds. A fast claim that takes longer reads index entries of deleted rows that cannot be vacuumed yet; the claim
# statement avoids them.
LONGEST_FAST_CLAIM = 0.02
# As slow as that are so many fast claims in a row that take longer than this.
SLOW_FAST_CLAIM = 0.005
SLOW_IN_A_ROW = 4
# After such a slow fast claim, the worker tries no other for this many times its duration.
REST = 100


class FastClaim:
    """Claims the few due jobs of an idle worker, mostly the single job that it was notified of."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        # The name under which the session keeps the statement.
        self._statement = PreparedStatement(
            database, "gw_fast_claim", fast_claim_statement(database.schema), settings=PLANNER
        )
        self._clock = clock
        # All workers of a fleet are notified of a job, and one worker gets it; each of the others would claim twice in
        # vain. So only a worker whose last fast claim found a job tries the next.
        self._is_promising = True
        self._rests_until = clock()
        self._slow_in_a_row = 0

    @property
    def is_worth_trying(self) -> bool:
        return self._is_promising and self._statement.is_possible and self._clock() >= self._rests_until

    def __call__(
        self, max_jobs: int, *, token: str, task_ids: bytes, forbidden_flags: Sequence[str], now: datetime | None
    ) -> FastClaimed:
        """Claim every job that is due, or nothing: see ``sql.fast_claim.claim_few``."""
        began = self._clock()
        found = claim_few(
            self._statement,
            token=token,
            task_ids=task_ids,
            max_jobs=max_jobs,
            forbidden_flags=forbidden_flags,
            now=now,
        )
        self._is_promising = bool(found.claims)
        self._note_duration(began, self._clock())
        return found

    def _note_duration(self, began: float, ended: float) -> None:
        seconds = ended - began
        self._slow_in_a_row = self._slow_in_a_row + 1 if seconds > SLOW_FAST_CLAIM else 0
        if seconds > LONGEST_FAST_CLAIM or self._slow_in_a_row >= SLOW_IN_A_ROW:
            self._rests_until = ended + REST * seconds
            self._slow_in_a_row = 0

    def learn_from(self, claimed: Claimed) -> None:
        """Note from the answer to a claim whether a fast claim would have been enough."""
        if claimed.claims and not claimed.has_more:
            self._is_promising = all(claim.queue_id is None for claim in claimed.claims)


def rehearse(database: Database) -> None:
    """Have the session prepare and plan the statement. Without a task it finds no job, and changes nothing."""
    fast_claim = FastClaim(database)
    if fast_claim.is_worth_trying:
        fast_claim(1, token="", task_ids=b"{}", forbidden_flags=(), now=None)
