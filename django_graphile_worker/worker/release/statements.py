"""The statements that end claims, on the releaser's own connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import ProgramLimitExceeded

from django_graphile_worker.sql import control, releases
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.control import Pause
from django_graphile_worker.sql.limits import KeyClosing, close_keys
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.prepared import BlockingCursor
from django_graphile_worker.worker.outcomes import Cancelled, Expired, Failed, Interrupted, Recorded, Succeeded
from django_graphile_worker.worker.recording import Recording

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

UNSTORABLE = "The error of this job could not be stored: {error}"


class ReleaseStatements:
    """The statements of ``sql.releases``, bound to a connection, a schema and the time of a worker."""

    def __init__(self, worker: DatabaseWorker, database: Database) -> None:
        self._worker = worker
        self._database = database
        self._blocking_cursor = BlockingCursor(database)
        self._schema = database.schema
        self._recording = Recording(worker.settings)
        # The claims that have ended as cancelled and were not reported yet, by the ids of the jobs.
        self.cancelled: dict[int, releases.CancelledClaim] = {}

    def rehearse(self) -> None:
        """Open the connection, and have the session plan what ends most claims."""
        with self._database.cursor() as cursor:
            releases.rehearse(cursor, schema=self._schema)

    def complete(self, outcomes: Sequence[Succeeded]) -> set[int]:
        """Complete jobs of which nothing is recorded."""
        with self._blocking_cursor.usable() as cursor:
            return releases.complete_jobs(cursor, [outcome.claim for outcome in outcomes], schema=self._schema)

    def complete_recorded(self, outcomes: Sequence[Recorded]) -> set[int]:
        """Complete jobs of which something is recorded."""
        completed = self._recording.completed(outcomes)
        with self._blocking_cursor.usable() as cursor:
            return releases.complete_recorded(cursor, completed, schema=self._schema, now=self._worker.now())

    def fail(self, outcomes: Sequence[Failed]) -> dict[int, float | None]:
        """Fail jobs; return the seconds until their next attempts by id, None for a job that has none."""
        failures = self._recording.failures(outcomes)
        try:
            return self._fail(failures)
        except psycopg.DataError as error:
            if len(failures) > 1:
                raise
            # The text cannot be stored: release the job without its error rather than not at all.
            return self._fail([replace(failures[0], error=UNSTORABLE.format(error=error), payload_text=None)])

    def _fail(self, failures: Sequence[releases.Failure]) -> dict[int, float | None]:
        with self._database.cursor() as cursor:
            return releases.fail_jobs(cursor, failures, on_cancelled=self._note_cancelled, **self._options())

    def pause_queues(self, outcomes: Sequence[Failed]) -> list[Pause]:
        """Pause the queues of jobs whose tasks asked for it; return the pauses that are new."""
        asked = [
            control.OwnQueue(
                job_id=outcome.claim.id,
                token=outcome.claim.token,
                queue_name=outcome.claim.queue_name or "",
                seconds=outcome.queue_pause.seconds,
                reason=outcome.queue_pause.reason,
                by=f"job {outcome.claim.id}",
            )
            for outcome in outcomes
            if outcome.queue_pause is not None
        ]
        with self._database.cursor() as cursor:
            return control.pause_own_queues(cursor, asked, schema=self._schema, now=self._worker.now())

    def close_keys(self, closings: Sequence[KeyClosing]) -> None:
        """Close keys of limits, because tasks asked for it."""
        with self._database.cursor() as cursor:
            close_keys(cursor, closings, schema=self._schema, clock=self._worker.limit_time())

    def return_jobs(self, outcomes: Sequence[Interrupted]) -> set[int]:
        """Return jobs, array jobs with the items that are left of their payloads."""
        runs = list(map(self._recording.stopped, outcomes))
        try:
            return self._return(runs)
        except psycopg.DataError:
            if len(runs) > 1:
                raise
            # The remaining payload cannot be stored: run all items again rather than none.
            return self._return([runs[0]._replace(payload_text=None)])

    def _return(self, runs: Sequence[releases.StoppedRun]) -> set[int]:
        with self._database.cursor() as cursor:
            return releases.return_stopped(cursor, runs, on_cancelled=self._note_cancelled, **self._options())

    def end_cancelled(self, outcomes: Sequence[Cancelled]) -> set[int]:
        """End jobs that were stopped because they were cancelled."""
        runs = list(map(self._recording.stopped, outcomes))
        with self._database.cursor() as cursor:
            ended = releases.end_cancelled(cursor, runs, **self._options())
        for claim in ended:
            self._note_cancelled(claim)
        return {claim.id for claim in ended}

    def expire(self, outcomes: Sequence[Expired]) -> set[int]:
        """End jobs that were not started in time."""
        expired = [releases.ExpiredClaim(outcome.claim, outcome.expires_at) for outcome in outcomes]
        with self._database.cursor() as cursor:
            return releases.expire(cursor, expired, **self._options())

    def still_claimed(self, ended: Sequence[Claim]) -> set[int]:
        with self._database.cursor() as cursor:
            return releases.still_claimed(cursor, ended, schema=self._schema)

    def release_queues(self, queues: Sequence[releases.HeldQueue]) -> set[int]:
        """Release queues; return the ids of the queues that have a job to run.

        All of the queues are checked for jobs, not only the queues that were still held: after a broken connection, the
        first try, whose answer was lost, may have released them.
        """
        with self._database.cursor() as cursor:
            releases.release_queues(cursor, queues, schema=self._schema)
        queue_ids = [queue.id for queue in queues]
        try:
            return self._waiting(queue_ids, self._worker.sender if self._worker.settings.notify else None)
        except ProgramLimitExceeded:
            # The notification queue of the server is full. This worker claims the jobs, or others find them by polling.
            return self._waiting(queue_ids, None)

    def close(self) -> None:
        self._database.close()

    def _options(self) -> dict[str, Any]:
        return {"schema": self._schema, "now": self._worker.now(), "keeping": self._worker.result_keeping()}

    def _note_cancelled(self, claim: releases.CancelledClaim) -> None:
        self.cancelled[claim.id] = claim

    def _waiting(self, queue_ids: Sequence[int], sender: str | None) -> set[int]:
        with self._database.cursor() as cursor:
            return releases.waiting_queues(
                cursor, queue_ids, schema=self._schema, sender=sender, now=self._worker.now()
            )
