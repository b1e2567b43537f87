"""Claims jobs: with the claim statement, or with the fast one of an idle worker.

``HeldClaims`` notes what came back, and searches for claims whose answer was lost.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import psycopg

from django_graphile_worker.sql import claims, control, releases
from django_graphile_worker.sql.claims import (
    FAST_PLANNER,
    Claim,
    Claimed,
    FastClaimed,
    claim_few,
    fast_claim_statement,
    group_by_token,
)
from django_graphile_worker.sql.limits import LimitedClaimed
from django_graphile_worker.worker.database.prepared import BlockingCursor, PreparedStatement
from django_graphile_worker.worker.fetching.scan import MIN_REST, REST, Scan
from django_graphile_worker.worker.pool.line import WorkUnit

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

MAX_FREED_QUEUES = 1000

# Seconds. A fast claim that takes longer reads index entries of deleted rows that cannot be vacuumed yet; the claim
# statement avoids them.
LONGEST_FAST_CLAIM = 0.02
# As slow as that are so many fast claims in a row that take longer than this.
SLOW_FAST_CLAIM = 0.005
SLOW_IN_A_ROW = 4
# After such a slow fast claim, the worker tries no other for this many times its duration.
FAST_CLAIM_REST = 100

# What a claim statement returned.
AnswerT = TypeVar("AnswerT", Claimed, FastClaimed, LimitedClaimed)

# Seconds between searches after a claim whose answer was lost: the statement may be committed later.
SEARCH_INTERVAL = 1.0


class Claimer:
    """Claims jobs of the tasks that this worker runs."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self._database = worker.claim_database
        self._cursor = BlockingCursor(worker.claim_database)
        self._held = worker.held
        self._directory = worker.directory
        self.scan = Scan()
        # Queues that this worker has released: unless the next claim begins at the start, their jobs stand before the
        # place where it goes on. Other threads add to it. What does not fit in is found by a claim from the start.
        self._freed_queues: deque[int] = deque(maxlen=MAX_FREED_QUEUES)
        # Those of which a claim took no job: others came first, or had locked them. And when they are tried again.
        self._left_queues: deque[int] = deque(maxlen=MAX_FREED_QUEUES)
        self._try_left_queues_at = 0.0

    def claim(
        self, *, max_jobs: int, max_per_queue: int, max_bytes: int = claims.UNLIMITED_BYTES, free_slots: int = 0
    ) -> Claimed:
        """Claim jobs within the limits of ``claims.claim_jobs``; go on where the last claim stopped, or begin anew.

        How many slots are free matters to claims of limited jobs only.
        """
        if self._held.is_search_due:
            self._held.return_lost()
        if self._directory.is_review_due:
            self._directory.review()
        began = time.monotonic()
        flags = self._worker.forbidden_flags()
        behind = self.scan.behind(began, (tuple(self._directory.ids), frozenset(flags)))
        freed = self._take_freed_queues(began)
        limits = {"max_jobs": max_jobs, "max_per_queue": max_per_queue, "max_bytes": max_bytes}
        try:
            claimed = self._held.hold(
                lambda: self.send(behind, () if behind == claims.START else freed, flags, **limits)
            )
        except psycopg.errors.QueryCanceled:
            self.scan.note_cancelled(began=began, ended=time.monotonic())
            self.note_freed_queues(freed)
            raise
        except BaseException:
            self.scan.begin_again()
            raise
        if claimed is None:
            self.scan.begin_again()
            return Claimed(claims=[], seconds_until_next=None, has_more=True)
        if not claimed.claims and self._directory.find_new_tasks():
            self.note_freed_queues(freed)
            self.scan.begin_again()
            return replace(claimed, has_more=True)
        ended = time.monotonic()
        self._worker.fast_path.learn_from(claimed)
        self.scan.note(claimed, ended=ended)
        until_pass = self.scan.until_next_pass(ended)
        if claimed.freed_queues:
            self._left_queues.extend(claimed.freed_queues)
            self._try_left_queues_at = ended + max(MIN_REST, REST * claimed.seconds if claimed.has_more else 0.0)
        elif not claimed.has_more:
            # Nothing else comes first.
            self.note_freed_queues(self._left_queues)
            self._left_queues.clear()
        until_left = max(self._try_left_queues_at - ended, 0.0) if self._left_queues else None
        waits = [each for each in (claimed.seconds_until_next, until_pass, until_left) if each is not None]
        # Queues that were released during the claim call for the next.
        has_more = claimed.has_more or until_pass == 0 or bool(self._freed_queues)
        return replace(claimed, seconds_until_next=min(waits, default=None), has_more=has_more)

    def note_freed_queues(self, queue_ids: Iterable[int]) -> None:
        """Have the next claim look for jobs of these queues."""
        self._freed_queues.extend(queue_ids)

    def _take_freed_queues(self, now: float) -> list[int]:
        freed = [self._freed_queues.popleft() for _ in range(len(self._freed_queues))]
        if now >= self._try_left_queues_at:
            freed.extend(self._left_queues)
            self._left_queues.clear()
        return freed

    def send(
        self, behind: claims.Continuation, freed_queues: Collection[int], forbidden_flags: Sequence[str], **limits: int
    ) -> Claimed:
        """Send the claim statement, for the jobs behind a place."""
        limited = self._worker.limited
        with self._cursor.usable() as cursor:
            return claims.claim_jobs(
                cursor,
                schema=self._database.schema,
                token=self._held.next_token(),
                task_ids=self._directory.ids,
                forbidden_flags=forbidden_flags,
                limited_tasks=() if limited is None else limited.tasks.ids,
                now=self._worker.now(),
                behind=behind,
                freed_queues=freed_queues,
                **limits,
            )

    def close(self) -> None:
        self._database.close()


class FastPath:
    """The fast path: the single job that an idle worker was notified of starts on the thread that claimed it.

    It is there for latency: without it an idle worker takes 1.4 times as long from ``add_job`` to the task's first
    line. ``sql.claims.FAST_CLAIM`` has one look-up and one update in place of the claim statement, which chooses
    between queues and backlogs; ``database.prepared`` runs them without the driver's cursor; and the thread that
    claimed runs the job, while another thread of the pool fetches, because it takes long to wake a thread.

    The fetcher calls ``start_due_jobs()``, the claimer ``learn_from()``, and nothing else belongs to it.
    """

    def __init__(self, worker: DatabaseWorker, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker
        database = worker.claim_database
        # The name under which the session keeps the statement.
        self._statement = PreparedStatement(
            database, "gw_fast_claim", fast_claim_statement(database.schema), settings=FAST_PLANNER
        )
        self._clock = clock
        # All workers of a fleet are notified of a job, and one worker gets it; each of the others would claim twice in
        # vain. So only a worker whose last fast claim found a job tries the next.
        self._is_promising = True
        self._rests_until = clock()
        self._slow_in_a_row = 0

    def start_due_jobs(self) -> float | None:
        """Start all jobs that are due; return the seconds until the next job is due, infinity if no job is known.

        Return None if nothing was started: then only the claim statement can find a due job.
        """
        worker = self._worker
        vacant = worker.pool.vacant
        if vacant < 1 or self._is_claim_needed():
            return None
        worker.reports.claim_started()
        started = time.perf_counter()
        claimed = worker.held.hold(lambda: self.send(vacant))
        if claimed is None or not claimed.claims:
            worker.reports.nothing_claimed(time.perf_counter() - started)
            return None
        worker.reports.jobs_claimed(claimed.claims, time.perf_counter() - started)
        self._start(claimed.claims)
        seconds = claimed.seconds_until_next
        return math.inf if seconds is None else seconds

    @property
    def is_worth_trying(self) -> bool:
        """Whether a fast claim would probably find a job, quickly."""
        return self._is_promising and self._statement.is_possible and self._clock() >= self._rests_until

    def learn_from(self, claimed: Claimed) -> None:
        """Note from the answer to a claim whether a fast claim would have been enough."""
        if claimed.claims and not claimed.has_more:
            self._is_promising = all(claim.queue_id is None for claim in claimed.claims)

    def _is_claim_needed(self) -> bool:
        """Must the claimer claim, because it has a search or a review to do, or a fast claim is not worth trying?

        A fast claim reads the backlog from its start.
        """
        worker = self._worker
        return (
            worker.held.is_search_due
            or worker.directory.is_review_due
            or not self.is_worth_trying
            or not worker.claimer.scan.is_quick
        )

    def send(self, vacant: int) -> FastClaimed:
        """Claim every job that is due, or nothing: see ``sql.claims.claim_few``."""
        worker = self._worker
        forbidden_flags = worker.forbidden_flags()
        began = self._clock()
        found = claim_few(
            self._statement,
            token=worker.held.next_token(),
            task_ids=worker.directory.ids_text,
            max_jobs=vacant,
            forbidden_flags=forbidden_flags,
            now=worker.now(),
        )
        self._is_promising = bool(found.claims)
        self._note_duration(began, self._clock())
        return found

    def _note_duration(self, began: float, ended: float) -> None:
        seconds = ended - began
        self._slow_in_a_row = self._slow_in_a_row + 1 if seconds > SLOW_FAST_CLAIM else 0
        if seconds > LONGEST_FAST_CLAIM or self._slow_in_a_row >= SLOW_IN_A_ROW:
            self._rests_until = ended + FAST_CLAIM_REST * seconds
            self._slow_in_a_row = 0

    def _start(self, claimed: list[Claim]) -> None:
        pool = self._worker.pool
        # All due jobs run: a slot that becomes free need not call for jobs.
        pool.wants_jobs = True
        for claim in claimed[1:]:
            pool.submit([claim], callers=1)
        if not pool.keep(WorkUnit([claimed[0]], None, time.monotonic())):
            pool.submit(claimed[:1], callers=1)


class HeldClaims:
    """The claims whose answers this process has received; each claim statement runs through ``hold()``.

    If a connection breaks during a claim statement, the worker has no answer, but perhaps it has the claims: the
    statement may have been committed, or may even be under way still. No other worker would return such jobs while
    this worker lives. So this worker returns them: it compares its claims in the database with the claims that it has
    received.
    """

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
