"""The statements that end claims, on the releaser's own connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from psycopg.errors import ProgramLimitExceeded

from django_graphile_worker.conf import Settings
from django_graphile_worker.run_flags import keep_in
from django_graphile_worker.sql import cancelled_claims, releases
from django_graphile_worker.sql.cancelled_claims import OnCancelled, ignore_cancelled
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.result_keeping import NOTHING_KEPT, ResultKeeping
from django_graphile_worker.worker.database.blocking_cursor import BlockingCursor
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.outcomes import Cancelled, Expired, Failed, Interrupted, Recorded

if TYPE_CHECKING:
    from django_graphile_worker.pause_type import Pause
    from django_graphile_worker.sql.limits.places import KeyClosing
    from django_graphile_worker.worker.recording import Recording

Clock = Callable[[], datetime | None]


class Cancelling(TypedDict):
    """The arguments of statements that may find that jobs were cancelled."""

    keeping: ResultKeeping
    on_cancelled: OnCancelled


class ReleaseStatements:
    """The statements of ``sql.releases``, bound to a connection, a schema and a clock."""

    def __init__(
        self,
        database: Database,
        *,
        now: Clock,
        settings: Settings,
        keeping: Callable[[], ResultKeeping] | None = None,
        limit_clock: Clock = lambda: None,
    ) -> None:
        self._database = database
        self._blocking_cursor = BlockingCursor(database)
        self._schema = database.schema
        self._now = now
        self._settings = settings
        # Returns which tasks keep their results: for jobs that end otherwise than their run did.
        self._keeping = keeping or (lambda: NOTHING_KEPT)
        # The time of keys that are closed; None for the clock of the database, which all workers share.
        self._limit_clock = limit_clock
        self._recording: Recording | None = None
        # How the notifications begin that queues with jobs are free. The worker itself need not hear of them.
        self.sender = releases.new_sender()
        # Called for each claim that ends as cancelled because of a request in the database.
        self.on_cancelled: OnCancelled = ignore_cancelled

    def rehearse(self) -> None:
        """Open the connection, and have the session plan what ends most claims."""
        with self._database.cursor() as cursor:
            releases.rehearse(cursor, schema=self._schema)

    def complete(self, ended: Sequence[Claim]) -> set[int]:
        with self._blocking_cursor.usable() as cursor:
            return releases.complete_jobs(cursor, ended, schema=self._schema)

    def complete_recorded(self, outcomes: Sequence[Recorded]) -> set[int]:
        """Complete jobs of which something is recorded."""
        # Late import: most workers record nothing.
        from django_graphile_worker.sql.records import recorded_releases

        completed = self._records().completed(outcomes)
        with self._blocking_cursor.usable() as cursor:
            return recorded_releases.complete_jobs(cursor, completed, schema=self._schema, now=self._now())

    def fail(self, failures: Sequence[releases.Failure]) -> dict[int, float | None]:
        with self._database.cursor() as cursor:
            return releases.fail_jobs(cursor, failures, schema=self._schema, now=self._now(), **self._cancelling())

    def fail_recorded(self, failures: Sequence[tuple[releases.Failure, Failed]]) -> dict[int, float | None]:
        """Fail jobs, some of which keep their results or have a history."""
        # Late import: most workers record nothing.
        from django_graphile_worker.sql.records import recorded_releases

        records = self._records()
        recorded = [(failure, records.failed(outcome)) for failure, outcome in failures]
        with self._database.cursor() as cursor:
            return recorded_releases.fail_jobs(
                cursor, recorded, schema=self._schema, now=self._now(), **self._cancelling()
            )

    def pause_queues(self, outcomes: Sequence[Failed]) -> list[Pause]:
        """Pause the queues of jobs whose tasks asked for it; return the pauses that are new."""
        # Late import: few tasks pause their queues.
        from django_graphile_worker.sql import pauses

        asked = [
            pauses.OwnQueue(
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
            return pauses.pause_own_queues(cursor, asked, schema=self._schema, now=self._now())

    def close_keys(self, closings: Sequence[KeyClosing]) -> None:
        """Close keys of limits, because tasks asked for it."""
        # Late import: few tasks close their keys.
        from django_graphile_worker.sql.limits.places import close_keys

        with self._database.cursor() as cursor:
            close_keys(cursor, closings, schema=self._schema, clock=self._limit_clock())

    def is_recorded(self, outcome: Failed) -> bool:
        """Return True if something is recorded of a failed attempt."""
        default = self._settings.keep_results
        keep = default if outcome.task is None else outcome.task.result_seconds(default)
        return self.has_history or keep is not None or keep_in(outcome.claim.flags_text) is not None

    @property
    def has_history(self) -> bool:
        return self._settings.history is not None

    def return_jobs(self, ended: Sequence[Claim]) -> set[int]:
        with self._database.cursor() as cursor:
            return releases.return_jobs(cursor, ended, schema=self._schema, **self._cancelling())

    def return_recorded(self, outcomes: Sequence[Interrupted]) -> set[int]:
        """Return jobs, with the items that are left of their payloads, and add them to the history."""
        # Late import: most workers record nothing.
        from django_graphile_worker.sql.records import recorded_releases

        returned = list(map(self._records().returned, outcomes))
        with self._database.cursor() as cursor:
            return recorded_releases.return_jobs(
                cursor, returned, schema=self._schema, now=self._now(), **self._cancelling()
            )

    def return_remaining(self, ended: Sequence[tuple[Claim, str]]) -> set[int]:
        """Return array jobs with the items that are left of their payloads."""
        with self._database.cursor() as cursor:
            return releases.return_remaining(cursor, ended, schema=self._schema, **self._cancelling())

    def end_cancelled(self, outcomes: Sequence[Cancelled]) -> set[int]:
        """End jobs that were stopped because they were cancelled."""
        runs = list(map(self._records().stopped, outcomes))
        with self._database.cursor() as cursor:
            ended = cancelled_claims.end_cancelled(
                cursor, runs, schema=self._schema, now=self._now(), keeping=self._keeping()
            )
        for claim in ended:
            self.on_cancelled(claim)
        return {claim.id for claim in ended}

    def expire(self, outcomes: Sequence[Expired]) -> set[int]:
        """End jobs that were not started in time."""
        # Late import: few jobs expire.
        from django_graphile_worker.sql import expiry

        expired = [expiry.ExpiredClaim(outcome.claim, outcome.expires_at) for outcome in outcomes]
        with self._database.cursor() as cursor:
            return expiry.expire(cursor, expired, schema=self._schema, now=self._now(), keeping=self._keeping())

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
            return self._waiting(queue_ids, self.sender if self._settings.notify else None)
        except ProgramLimitExceeded:
            # The notification queue of the server is full. This worker claims the jobs, or others find them by polling.
            return self._waiting(queue_ids, None)

    def close(self) -> None:
        self._database.close()

    def _cancelling(self) -> Cancelling:
        return {"keeping": self._keeping(), "on_cancelled": self.on_cancelled}

    def _records(self) -> Recording:
        if self._recording is None:
            # Late import: most workers record nothing.
            from django_graphile_worker.worker.recording import Recording

            self._recording = Recording(self._settings)
        return self._recording

    def _waiting(self, queue_ids: Sequence[int], sender: str | None) -> set[int]:
        with self._database.cursor() as cursor:
            return releases.waiting_queues(cursor, queue_ids, schema=self._schema, sender=sender, now=self._now())
