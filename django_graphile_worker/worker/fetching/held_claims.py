"""The claims that a worker holds, and the search for claims whose answer was lost.

If a connection breaks during a claim statement, the worker has no answer, but perhaps it has the claims: the statement
may have been committed, or may even be under way still. No other worker would return such jobs while this worker
lives. So this worker returns them: it compares its claims in the database with the claims that it has received.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import psycopg

from django_graphile_worker.sql import control, releases
from django_graphile_worker.sql.claims import Claim, Claimed, FastClaimed, group_by_token
from django_graphile_worker.sql.limits import LimitedClaimed

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# What a claim statement returned.
AnswerT = TypeVar("AnswerT", Claimed, FastClaimed, LimitedClaimed)

# Seconds between searches after a claim whose answer was lost: the statement may be committed later.
SEARCH_INTERVAL = 1.0


class HeldClaims:
    """The claims whose answers this process has received; each claim statement runs through ``hold()``."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self._database = worker.claim_database
        # The claims that this process has received: by token, the ids of the jobs that have not ended.
        self._known: dict[str, set[int]] = {}
        # The number of the last claim statement. The token of a claim is the worker's id and this number.
        self._statements = 0
        self._lost_queues: set[releases.HeldQueue] = set()
        # Infinite unless an answer was lost: a search takes longer, the more jobs are claimed.
        self._search_at = math.inf
        self._in_doubt_until = 0.0

    def next_token(self) -> str:
        """Return the token of the next claim statement. No token is used twice, even if no answer arrives.

        Called when the connection is open: the worker may lose its lease while the connection is being opened, and
        ``return_lost()`` finds only the claims under the new id.
        """
        self._statements += 1
        return f"{self._worker.worker_id}/{self._statements}"

    def hold(self, claim: Callable[[], AnswerT]) -> AnswerT | None:
        """Run a claim statement, and note what it claimed.

        Return None if the worker lost its lease meanwhile: then another worker recovers the claimed jobs.
        """
        worker_id = self._worker.worker_id
        try:
            answer = claim()
        except BaseException:  # whatever kept the answer from being read
            self._doubt()
            raise
        if worker_id != self._worker.worker_id:
            self._doubt()
            return None
        for token, job_ids in group_by_token(answer.claims).items():
            self._known[token] = set(job_ids)
        return answer

    def forget(self, ended: Iterable[Claim]) -> None:
        """Remove claims that have ended."""
        for token, job_ids in group_by_token(ended).items():
            known = self._known.get(token)
            if known is not None:
                known.difference_update(job_ids)
                if not known:
                    self._known.pop(token, None)

    @property
    def is_search_due(self) -> bool:
        return time.monotonic() > self._search_at

    @property
    def is_in_doubt(self) -> bool:
        """Was the answer to a claim lost so recently that the statement may still be committed?"""
        return time.monotonic() < self._in_doubt_until

    def return_lost(self) -> None:
        """Return the jobs that this worker has claimed according to the database, but whose answer it never received.

        Called by the thread that claims, or while no thread claims: otherwise a claim whose answer is about to arrive
        could be mistaken for a claim whose answer was lost.
        """
        schema = self._database.schema
        # Copied before the query: a claim that the query finds and that ends during the query is in the copy.
        known = {token: job_ids.copy() for token, job_ids in self._known.copy().items()}
        with self._database.cursor() as cursor:
            held = releases.claims_of(cursor, schema=schema, worker_id=self._worker.worker_id)
            lost = [job for job in held if job.id not in known.get(job.token, ())]
            # Noted first: after the jobs are returned, no row shows that a queue was lost with them.
            self._lost_queues.update(
                releases.HeldQueue(job.queue_id, job.token) for job in lost if job.queue_id is not None
            )
            returned: set[int] = set()
            if lost:
                keeping = self._worker.result_keeping()
                cancelled = control.end_cancelled_claims(cursor, lost, schema=schema, keeping=keeping)
                if cancelled:
                    self._worker.cancelled_jobs_recovered(cancelled)
                returned = releases.return_jobs(cursor, lost, schema=schema, keeping=keeping)
        # A job that a transaction of the site has locked at the moment is still claimed, and so is its queue.
        busy = [job for job in lost if job.id not in returned]
        self._release_lost_queues({releases.HeldQueue(job.queue_id, job.token) for job in busy if job.queue_id})
        interval = SEARCH_INTERVAL if busy or self.is_in_doubt else math.inf
        self._search_at = time.monotonic() + interval

    def _doubt(self) -> None:
        """Search for claims from now on: the answer is lost, but the statement may be committed, or still under way."""
        self._search_at = 0.0
        self._in_doubt_until = time.monotonic() + 2 * self._worker.settings.statement_timeout

    def _release_lost_queues(self, needed: set[releases.HeldQueue]) -> None:
        queues, schema = list(self._lost_queues - needed), self._database.schema
        if not queues:
            return
        with self._database.cursor() as cursor:
            releases.release_queues(cursor, queues, schema=schema)
        # If the notification queue of the server is full, other workers find the jobs when they poll.
        with contextlib.suppress(psycopg.errors.ProgramLimitExceeded), self._database.cursor() as cursor:
            sender = releases.new_sender() if self._worker.settings.notify else None
            releases.waiting_queues(cursor, [queue.id for queue in queues], schema=schema, sender=sender)
        self._lost_queues.difference_update(queues)
