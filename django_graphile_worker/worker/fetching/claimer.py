"""The claim statement, with what it needs to know: which tasks, which flags, whose clock."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
from django.db import close_old_connections
from django.utils.module_loading import import_string

from django_graphile_worker.conf import Settings
from django_graphile_worker.exceptions import ConfigurationError, SchemaError
from django_graphile_worker.flags import checked_flags
from django_graphile_worker.registry import Task
from django_graphile_worker.sql import claims, releases, row_security
from django_graphile_worker.sql import tasks as task_names
from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.sql.errors import not_installed, not_permitted, translated
from django_graphile_worker.sql.fast_claim import NOTHING, Glance
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching.blocked_jobs import Walking
from django_graphile_worker.worker.fetching.fast_path import FastClaim

# Task names are looked up again now and then: somebody may have cleaned them away.
REVIEW_INTERVAL = 60.0
# After a claim whose answer was lost, how often to look whether it came through after all.
LOST_CLAIM_INTERVAL = 1.0
# Under a long backlog, how often to look at all of it: a job that sorts before the
# ones just taken, or whose queue has just become free, waits this long at most.
WHOLE_LOOK_INTERVAL = 0.1


class Claimer:
    """Takes jobs of the tasks that this worker runs."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        tasks: Mapping[str, Task[Any, Any]],
        *,
        worker_id: Callable[[], str],
        notify: bool = True,
    ) -> None:
        self._database = database
        self._notify = notify
        # What this process knows to have, as (job id, token).
        self.in_hand: set[tuple[int, str]] = set()
        self._lost_queues: set[releases.HeldQueue] = set()
        # Only after an answer was lost: reading who holds what takes as long as there are claimed jobs.
        self._look_for_lost_at = math.inf
        self._in_doubt_until = 0.0
        self._settings = settings
        self._tasks = tasks
        self._worker_id = worker_id
        # Counts the claim statements: with the worker's id, what locked_by says of each.
        self._epoch = 0
        self._by_id: dict[int, Task[Any, Any]] = {}
        self._task_ids = b"{}"
        self._glancer = FastClaim(database, schema=settings.schema)
        self._reviewed_at = 0.0
        self._last: claims.Claim | None = None
        self._walking = Walking()
        self._looked_at_all_at = 0.0
        self._forbidden = settings.forbidden_flags
        if isinstance(self._forbidden, str):
            self._forbidden = import_string(self._forbidden)

    def __call__(self, **limits: int) -> claims.Claimed:
        """Claim jobs within the limits of ``claims.claim_jobs``; a claim that has not seen everything is continued."""
        if time.monotonic() > self._look_for_lost_at:
            self.return_lost()
        if time.monotonic() - self._reviewed_at > REVIEW_INTERVAL:
            self.review_tasks()
        resume_after = self._resume_after()
        worker_id, began = self._worker_id(), time.monotonic()
        # A claim that is resumed looks for the next jobs of a long backlog; a look at everything is soon to come.
        max_steps = self._walking.steps(began) if resume_after is None else 0
        try:
            claimed = self._claim(resume_after=resume_after, max_steps=max_steps, **limits)
        except BaseException:  # whatever kept the answer from being read
            self._doubt()
            raise
        if self._has_changed(worker_id):
            return claims.Claimed(claims=[], seconds_until_next=None, has_more=True)
        self.in_hand.update([(claim.id, claim.token) for claim in claimed.claims])
        self._glancer.learn_from(claimed)
        self._last = _last_unqueued(claimed.claims) if claimed.has_more else None
        if resume_after is not None:
            # Whether there is something before the place where it began, the next look tells.
            return replace(claimed, has_more=True)
        self._looked_at_all_at = ended = time.monotonic()
        if max_steps:
            self._walking.note(claimed, began=began, ended=ended)
        return replace(claimed, seconds_until_next=self._walking.until_next(claimed, ended))

    def glance(self, max_jobs: int) -> Glance:
        """All that is due, if that is little and easily seen. Of nothing else it can be told whether it is all."""
        now = time.monotonic()
        if now > self._look_for_lost_at or now - self._reviewed_at > REVIEW_INTERVAL:
            return NOTHING
        worker_id = self._worker_id()
        try:
            found = self._glancer(
                max_jobs,
                token=self._next_token(),
                task_ids=self._task_ids,
                forbidden_flags=self.forbidden_flags(),
                now=self.now(),
            )
        except BaseException:  # whatever kept the answer from being read
            self._doubt()
            raise
        if self._has_changed(worker_id):
            return NOTHING
        for claim in found.claims:
            self.in_hand.add((claim.id, claim.token))
        return found

    def _next_token(self) -> str:
        """What locked_by is to say after the next claim statement: never the same twice, also when no answer comes."""
        self._epoch += 1
        return f"{self._worker_id()}/{self._epoch}"

    def _has_changed(self, worker_id: str) -> bool:
        """Was the lease lost during the claim? Then what it brought is somebody else's, or soon will be."""
        if worker_id == self._worker_id():
            return False
        self._doubt()
        return True

    def _doubt(self) -> None:
        """The answer is lost, the claim perhaps not: it may even be still under way."""
        self._look_for_lost_at = 0.0
        self._in_doubt_until = time.monotonic() + 2 * self._settings.statement_timeout

    def _resume_after(self) -> claims.Claim | None:
        is_due = time.monotonic() - self._looked_at_all_at > WHOLE_LOOK_INTERVAL
        return None if is_due else self._last

    def _claim(
        self, *, resume_after: claims.Claim | None, max_steps: int, stretch: int, **limits: int
    ) -> claims.Claimed:
        with self._database.cursor() as cursor:
            return claims.claim_jobs(
                cursor,
                schema=self._settings.schema,
                token=self._next_token(),
                task_ids=list(self._by_id),
                forbidden_flags=self.forbidden_flags(),
                now=self.now(),
                resume_after=resume_after,
                max_steps=max_steps,
                walk=self._walking.place,
                max_per_queue=stretch,
                **limits,
            )

    def let_go(self, ended: Iterable[claims.Claim]) -> None:
        """These are in hand no more."""
        self.in_hand.difference_update([(claim.id, claim.token) for claim in ended])

    @property
    def is_in_doubt(self) -> bool:
        """Was the answer to a claim lost, not long ago?"""
        return time.monotonic() < self._in_doubt_until

    def return_lost(self) -> None:
        """Give back what the database says we have and nobody here knows of: claims whose answer was lost.

        Nobody else would. To be called by the one who claims, or in its absence: a
        claim whose answer is on its way looks just the same.
        """
        schema = self._settings.schema
        # Before the look: what is let go after it was in hand when it was seen.
        in_hand = self.in_hand.copy()
        with self._database.cursor() as cursor:
            held = releases.claims_of(cursor, schema=schema, worker_id=self._worker_id())
            lost = [job for job in held if (job.id, job.token) not in in_hand]
            # Noted first: once its jobs are back, nothing tells that a queue was lost with them.
            self._lost_queues.update(
                releases.HeldQueue(job.queue_id, job.token) for job in lost if job.queue_id is not None
            )
            returned = releases.return_jobs(cursor, lost, schema=schema) if lost else set()
        # A job that a transaction of the site has at the moment is still ours, and so is its queue.
        busy = [job for job in lost if job.id not in returned]
        self._release_lost_queues({releases.HeldQueue(job.queue_id, job.token) for job in busy if job.queue_id})
        interval = LOST_CLAIM_INTERVAL if busy or self.is_in_doubt else math.inf
        self._look_for_lost_at = time.monotonic() + interval

    def _release_lost_queues(self, needed: set[releases.HeldQueue]) -> None:
        queues, schema = list(self._lost_queues - needed), self._settings.schema
        if not queues:
            return
        with self._database.cursor() as cursor:
            releases.release_queues(cursor, queues, schema=schema)
        # Where the server's queue of notifications is full, others find the jobs when they poll.
        with contextlib.suppress(psycopg.errors.ProgramLimitExceeded), self._database.cursor() as cursor:
            releases.waiting_queues(cursor, [queue.id for queue in queues], schema=schema, notify=self._notify)
        self._lost_queues.difference_update(queues)

    def task_of(self, task_id: int) -> Task[Any, Any] | None:
        return self._by_id.get(task_id)

    def identifier_of(self, task_id: int) -> str | None:
        task = self._by_id.get(task_id)
        return None if task is None else task.identifier

    def forbidden_flags(self) -> tuple[str, ...]:
        """A callable is asked at every claim; an asynchronous one gets a loop for it."""
        if isinstance(self._forbidden, tuple):
            return self._forbidden
        born_in = fork_guard.generation
        try:
            flags: Any = self._forbidden() if callable(self._forbidden) else ()
            if inspect.isawaitable(flags):
                flags = asyncio.run(_result_of(flags))
            return checked_flags(flags)
        except ConfigurationError:
            raise
        except BaseException as error:  # even SystemExit: it is the site's code
            raise ConfigurationError(
                'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected its callable to return a list of flags, '
                f"got {type(error).__name__}: {error}"
            ) from error
        finally:
            # A process that it forked must not claim.
            fork_guard.end_child(born_in)
            # It may ask the database, on this thread: a connection that broke must not stay.
            close_old_connections()

    def now(self) -> datetime | None:
        """The worker's own clock, where the settings ask for it; else the database's."""
        return datetime.now(UTC) if self._settings.use_local_time else None

    def close(self) -> None:
        self._database.close()

    def check_installation(self) -> None:
        """Find the schema usable, or say what is wrong with it."""
        alias, schema = self._database.alias, self._settings.schema
        try:
            with self._database.cursor() as cursor:
                are_installed, are_secured = row_security.worker_tables(cursor, schema=schema)
                role, hidden = row_security.hidden_tables(cursor, schema=schema) if are_secured else ("", ())
        except psycopg.errors.InsufficientPrivilege as error:
            raise translated(error, alias=alias, schema=schema) or error from error
        if not are_installed:
            raise SchemaError(not_installed(alias, schema))
        if hidden:
            raise SchemaError(not_permitted(alias, schema, f"got {role!r}, to whom {', '.join(hidden)} look empty"))

    def review_tasks(self) -> None:
        """Have the names of this worker's tasks in the database, and their ids here."""
        with self._database.cursor() as cursor:
            names = task_names.register_tasks(cursor, list(self._tasks), schema=self._settings.schema)
        self._by_id = {task_id: self._tasks[identifier] for task_id, identifier in names.items()}
        self._task_ids = int_array(self._by_id).encode()
        self._reviewed_at = time.monotonic()


def _last_unqueued(claimed: Sequence[claims.Claim]) -> claims.Claim | None:
    """Where the next claim resumes: the jobs of a queue are claimed before their turn, so they say nothing of it."""
    return next((claim for claim in reversed(claimed) if claim.queue_id is None), None)


async def _result_of(awaitable: Any) -> Any:
    return await awaitable
