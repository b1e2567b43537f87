"""The claims of the in-process worker: one job at a time, in the order of a worker, with as few statements as possible.

Mostly a test has one job. Then one statement claims it, and a second one finds that it was the last.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from django_graphile_worker import simulation
from django_graphile_worker.registry import Task
from django_graphile_worker.sql import claims, control, pauses
from django_graphile_worker.sql import simulation as sql_simulation
from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.fast_claim import claim_only_job, statement_by_identifiers
from django_graphile_worker.testing.in_process.limited_claims import LimitedSingleClaims
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory

if TYPE_CHECKING:
    from django_graphile_worker.testing.in_process.in_process_worker import InProcessWorker


class LearningDirectory(TaskDirectory):
    """A task directory that learns ids from claims, so that it need not read them before."""

    def learn(self, task_id: int, task: Task[Any, Any]) -> None:
        self._by_id[task_id] = task


class SingleClaims:
    """Claims jobs for one call of ``run_jobs()`` after the other."""

    def __init__(self, worker: InProcessWorker) -> None:
        self._worker = worker
        self._database = worker.caller_database
        self._directory = worker.learning_directory
        self._now = worker.now
        self.tokens = (f"{worker.worker_id}/{number}" for number in count(1))
        self._identifiers = text_array([name for name, task in self._directory.tasks.items() if not task.limits])
        # None if no task has limits.
        self.limited: LimitedSingleClaims | None = None
        self._is_reviewed = False
        self._is_pausing = False
        # Whether nothing was due the last time: jobs that are due now mostly come one by one.
        self._was_empty = True

    def use_limits(self) -> None:
        """Claim limited jobs, too, from now on."""
        if self.limited is None:
            self.limited = LimitedSingleClaims(self._worker, self.tokens)

    def begin(self) -> None:
        """Forget what an earlier call of ``run_jobs()`` has found: its test may have been rolled back."""
        self._is_reviewed, self._was_empty = False, True
        if self._is_pausing:
            self._pause(frozenset(), frozenset())
        if self._directory.finds_tasks or any(task.limits for task in self._directory.tasks.values()):
            # A task is known by its id to have limits. And a job may be the first of a task that is not known yet, and
            # its turn may come before that of others.
            self._review()

    def claim(self) -> Claimed:
        """Claim the job that a worker would start next, if one is due."""
        if not simulation.has_pauses:
            return self._claim_next()
        until_end = self._read_pauses()
        claimed = self._claim_next()
        times = [seconds for seconds in (claimed.seconds_until_next, until_end) if seconds is not None]
        return claimed if claimed.claims else replace(claimed, seconds_until_next=min(times, default=None))

    def _read_pauses(self) -> float | None:
        """Pause what is paused at this time; return the seconds until the end of a pause, None if no end is known."""
        schema, now = self._database.schema, self._now()
        with self._database.cursor() as cursor:
            pauses.settle(cursor, schema=schema, now=now)
            read = control.read_control(cursor, "", schema=schema, now=now).pauses
        tasks, flags = (frozenset(each.name for each in read if each.kind == kind) for kind in ("task", "flag"))
        self._pause(tasks, flags)
        # The test that paused something may be over, and rolled back.
        simulation.has_pauses = bool(read)
        return min((each.seconds_left for each in read if each.seconds_left is not None), default=None)

    def _pause(self, tasks: frozenset[str], flags: frozenset[str]) -> None:
        self._directory.pause(tasks)
        self._identifiers = text_array(
            [name for name, task in self._directory.tasks.items() if name not in tasks and not task.limits]
        )
        self._worker.forbidden_flags.pause(flags)
        self._is_pausing = bool(tasks or flags)

    def _claim_next(self) -> Claimed:
        if self.limited is None:
            return self._claim_ordinary()
        limited = self.limited.claim(self._worker.forbidden_flags())
        if limited.claims:
            return Claimed(claims=limited.claims, seconds_until_next=None, has_more=True)
        ordinary = self._claim_ordinary()
        times = [each for each in (limited.seconds_until_next, ordinary.seconds_until_next) if each is not None]
        return replace(ordinary, seconds_until_next=min(times, default=None))

    def _claim_ordinary(self) -> Claimed:
        was_empty, self._was_empty = self._was_empty, False
        if was_empty and (only := self._only_job()) is not None:
            return Claimed(claims=[only], seconds_until_next=None, has_more=False)
        # A shorter statement than another claim finds whether the last job was the last.
        claimed = self._nothing_due() or self._next_job()
        self._was_empty = not claimed.claims
        return claimed

    def _only_job(self) -> Claim | None:
        """Claim the only job that is due; return None if there is none, or more to decide."""
        with self._database.cursor() as cursor:
            found = claim_only_job(
                lambda parameters: cursor.execute_numbered(statement_by_identifiers(self._database.schema), parameters),
                token=next(self.tokens),
                identifiers=self._identifiers,
                forbidden_flags=self._worker.forbidden_flags(),
                now=self._now(),
            )
        if found is None:
            return None
        claim, identifier = found
        self._directory.learn(claim.task_id, self._directory.tasks[identifier])
        return claim

    def _nothing_due(self) -> Claimed | None:
        """Return an empty claim if no job is due that any worker could claim."""
        with self._database.cursor() as cursor:
            first = sql_simulation.first_due(cursor, schema=self._database.schema)
        if first is None:
            return Claimed(claims=[], seconds_until_next=None, has_more=False)
        seconds = first - self._now().timestamp()
        return Claimed(claims=[], seconds_until_next=seconds, has_more=False) if seconds > 0 else None

    def _next_job(self) -> Claimed:
        if not self._is_reviewed:
            self._review()
        claimed = self._claim()
        if not claimed.claims and self._directory.find_new_tasks():
            claimed = self._claim()
        return claimed

    def _review(self) -> None:
        self._directory.review()
        self._is_reviewed = True

    def _claim(self) -> Claimed:
        behind, is_waiting = claims.START, False
        while True:
            with self._database.cursor() as cursor:
                claimed = claims.claim_jobs(
                    cursor,
                    schema=self._database.schema,
                    token=next(self.tokens),
                    task_ids=self._directory.ids,
                    max_jobs=1,
                    max_per_queue=1,
                    forbidden_flags=self._worker.forbidden_flags(),
                    now=self._now(),
                    behind=behind,
                    limited_tasks=() if self.limited is None else self.limited.task_ids,
                )
            is_waiting = is_waiting or claimed.is_waiting
            if not claimed.is_cut:
                # A job that another transaction has locked is due now.
                return replace(claimed, seconds_until_next=0.0) if is_waiting else claimed
            behind = claimed.continuation
