"""What the database knows about jobs that do not exist, and about the last failure of those that do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_graphile_worker.sql.inspection.history_search import past_attempts
from django_graphile_worker.sql.inspection.history_search.past_attempts import PastAttempt
from django_graphile_worker.sql.results import HistoryOutcome
from django_graphile_worker.sql.statements import statement

# A role that may only read tables may not read the sequence.
LAST_ID = """/* gw:last-job-id */
select case when has_sequence_privilege(':SCHEMA.jobs_id_seq1', 'select, usage')
    then coalesce(pg_sequence_last_value(':SCHEMA.jobs_id_seq1'::regclass), 0) end"""

FAILURES = (HistoryOutcome.FAILED, HistoryOutcome.PERMANENTLY_FAILED, HistoryOutcome.FAILED_BY_OPERATOR)


def last_job_id(cursor: Any, *, schema: str) -> int | None:
    """Return the id of the job that was added last, 0 if there was none; None if the role may not read it."""
    cursor.execute(statement(LAST_ID, schema))
    found: int | None = cursor.fetchone()[0]
    return found


def last_attempt(cursor: Any, job_id: int, *, schema: str) -> PastAttempt | None:
    """Return the attempt of a job that ended last, if the history has one."""
    return next(iter(past_attempts.attempts_of_job(cursor, job_id, schema=schema)), None)


def last_failure(cursor: Any, job_id: int, *, schema: str) -> datetime | None:
    """Return when the last attempt of a job failed, if the history has it."""
    attempts = past_attempts.attempts_of_job(cursor, job_id, schema=schema)
    return next((attempt.ended_at for attempt in attempts if attempt.outcome in FAILURES), None)
