"""The changes that actions make to jobs, through one function of the schema: the same for the admin, API and command.

The functions of graphile-worker, such as ``reschedule_jobs``, keep the behaviour that they have there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.job_options import LARGEST_PRIORITY, SMALLEST_PRIORITY
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.inspection.job_list import State
from django_graphile_worker.sql.jobs import JOB_COLUMNS, jobs_from
from django_graphile_worker.sql.results import NOTHING_KEPT, HistoryOutcome, ResultKeeping
from django_graphile_worker.sql.statements import Cursor, call_statements, moment, recorded_call_statements, statement

RUN_NOW, RUN_NEXT, RETRY, RESCHEDULE, FAIL = "run_now", "run_next", "retry", "reschedule", "fail"
DELETE, CANCEL = "delete", "cancel"
_WAITING = (State.READY, State.LIMITED, State.SCHEDULED, State.RETRYING)
# The states of the jobs that each action changes, in the admin, the API and the command.
STATES: dict[str, tuple[State, ...]] = {
    RUN_NOW: (State.SCHEDULED, State.RETRYING),
    RUN_NEXT: (State.READY, State.LIMITED),
    RETRY: (State.RETRYING, State.FAILED),
    RESCHEDULE: (*_WAITING, State.FAILED),
    FAIL: _WAITING,
    DELETE: (*_WAITING, State.FAILED),
    CANCEL: (*_WAITING, State.RUNNING),
}
# The error of a job that was failed without a reason, as in graphile-worker.
DEFAULT_REASON = "Manually marked as failed"
FUNCTION = "_private_change_jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of jobs: what is done, and the values that are given. None keeps the value that a job has."""

    action: str
    run_at: datetime | timedelta | None = None
    priority: int | None = None
    attempts: int | None = None
    max_attempts: int | None = None
    # JSON text.
    payload: str | None = None
    # Only jobs that have this revision are changed: a job with a later one has another payload by now.
    revision: int | None = None
    reason: str = DEFAULT_REASON
    # The time of a test's clock; None is the time of the database.
    now: datetime | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of ARGUMENTS."""
        run_at, delay = moment(self.run_at)
        return {
            "action": self.action,
            "run_at": run_at,
            "delay": delay,
            "new_priority": self.priority,
            "attempts": self.attempts,
            "max_attempts": self.max_attempts,
            "payload": self.payload,
            "revision": self.revision,
            "reason": self.reason,
            "now": self.now,
        }


# The arguments of the function after the ids.
ARGUMENTS = """, %(action)s::text, coalesce(%(run_at)s::timestamptz, now() + %(delay)s::float8 * interval '1 second'),
    %(new_priority)s::int, %(attempts)s::int, %(max_attempts)s::int, %(payload)s::json, %(revision)s::int,
    %(reason)s::text, %(now)s::timestamptz"""

_PARTS: dict[str, Any] = {"first": "%(ids)s::bigint[]", "rest": ARGUMENTS}
CHANGE_JOBS = call_statements("change-jobs", JOB_COLUMNS, FUNCTION, **_PARTS)
FAIL_JOBS = recorded_call_statements("change-jobs", JOB_COLUMNS, FUNCTION, **_PARTS)


def change_jobs(
    cursor: Cursor,
    job_ids: Sequence[int],
    change: Change,
    *,
    schema: str,
    notify: bool = True,
    keeping: ResultKeeping = NOTHING_KEPT,
) -> list[Job]:
    """Change the jobs to which the action applies, and return them; jobs that run are left out."""
    is_recorded = change.action == FAIL
    text = (FAIL_JOBS if is_recorded else CHANGE_JOBS)[notify]
    recorded = {"outcome": HistoryOutcome.FAILED_BY_OPERATOR, **keeping.parameters()} if is_recorded else {}
    cursor.execute(statement(text, schema), {"ids": list(job_ids), **change.parameters(), **recorded})
    return jobs_from(cursor, cursor.fetchall(), schema=schema)


# The index of available jobs begins with the priority, so this reads one row, and those of the given jobs before it.
LOWEST_PRIORITY = """/* gw:lowest-priority */
select job.priority from only :SCHEMA._private_jobs as job
where job.is_available and job.id <> all (%(ids)s::bigint[])
order by job.priority, job.run_at limit 1"""


def first_priority(cursor: Cursor, job_ids: Sequence[int] = (), *, schema: str) -> int | None:
    """Return the priority that puts these jobs before all others; None if no priority is low enough.

    It is one priority for all of them: among each other the jobs keep their order.
    """
    cursor.execute(statement(LOWEST_PRIORITY, schema), {"ids": list(job_ids)})
    row = cursor.fetchone()
    if row is None:
        # No other job waits: none of these needs another priority.
        return LARGEST_PRIORITY
    return int(row[0]) - 1 if row[0] > SMALLEST_PRIORITY else None
