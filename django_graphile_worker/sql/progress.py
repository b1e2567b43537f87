"""How far running jobs have got: a row for each job whose task has reported its progress.

A report states the token of the claim, so that a worker that has lost its claim does not change the progress of the run
that has replaced its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.sql.codecs import int_array, text_array
from django_graphile_worker.sql.statements import Cursor, statement
from django_graphile_worker.text import storable_text

# A longer message is cut: it is text for a line below a bar.
MAX_MESSAGE_LENGTH = 500
# Rows that one call of forget_ended() looks at.
ROWS_PER_STEP = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a task has got: ``done`` of ``total``. Without a total, only the number that is done is known."""

    done: float
    total: float | None = None
    message: str = ""
    # When it was stored; None for a value that is not stored yet.
    updated_at: datetime | None = None

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; None without a total."""
        if self.total is None:
            return None
        return min(self.done / self.total, 1.0) if self.total else 1.0

    @property
    def percent(self) -> int | None:
        """The part that is done in whole percent, rounded down: 100 means that all of it is done."""
        return None if self.fraction is None else math.floor(self.fraction * 100)


def valid_progress(done: object, total: object = None, message: object = "") -> Progress:
    """Return the arguments of ``helpers.progress()`` as a value; raise for values that no progress can have."""
    if not isinstance(message, str):
        raise InvalidTypeError(f"progress: expected a message (str), got {message!r}.")
    return Progress(
        done=_number("done", done),
        total=None if total is None else _number("total", total),
        message=storable_text(message[:MAX_MESSAGE_LENGTH]),
    )


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTypeError(
            f"progress: expected {name} to be a number, got {value!r}. Write helpers.progress(3, 7, 'page 3 of 7')."
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise InvalidJobError(f"progress: expected {name} to be a finite number of zero or more, got {value!r}.")
    return number


# Sorted by id, so that two statements that write the same rows cannot deadlock.
WRITE_PROGRESS = """/* gw:progress */
insert into :SCHEMA._private_progress as progress (job_id, attempt, done, total, message, updated_at)
select job.id, job.attempts, reported.done, reported.total, reported.message,
    coalesce(%(now)s::timestamptz, clock_timestamp())
from unnest(%(ids)s::bigint[], %(tokens)s::text[], %(done)s::float8[], %(totals)s::float8[], %(messages)s::text[])
    as reported (job_id, token, done, total, message)
join :SCHEMA._private_jobs as job on job.id = reported.job_id and job.locked_by = reported.token
order by job.id
on conflict (job_id) do update
set attempt = excluded.attempt, done = excluded.done, total = excluded.total, message = excluded.message,
    updated_at = excluded.updated_at
where progress.attempt <= excluded.attempt"""

# A row stays as long as its job or the result of its job.
FORGET_PROGRESS = """/* gw:forget-progress */
delete from :SCHEMA._private_progress as progress
where progress.job_id = any (%(ids)s::bigint[])
    and not exists (select from :SCHEMA._private_jobs as job where job.id = progress.job_id)
    and not exists (select from :SCHEMA._private_results as result where result.job_id = progress.job_id)"""

# Rows that a worker which died has left behind. A young row may belong to a job whose release is being committed.
FORGET_ENDED = """/* gw:forget-ended-progress */
with looked_at as materialized (
    select progress.job_id, progress.updated_at from :SCHEMA._private_progress as progress
    where progress.job_id > %(after)s::bigint
    order by progress.job_id limit %(most)s::int),
forgotten as (
    delete from :SCHEMA._private_progress as progress
    using looked_at
    where progress.job_id = looked_at.job_id and looked_at.updated_at < now() - interval '1 minute'
        and not exists (select from :SCHEMA._private_jobs as job where job.id = progress.job_id)
        and not exists (select from :SCHEMA._private_results as result where result.job_id = progress.job_id))
select count(*), max(looked_at.job_id) from looked_at"""


class Report(NamedTuple):
    """The progress of the run that a token identifies."""

    job_id: int
    token: str
    done: float
    total: float | None
    message: str


def write(cursor: Cursor, reports: Sequence[Report], *, schema: str, now: datetime | None = None) -> None:
    """Store the progress of jobs that are still claimed under the tokens."""
    parameters = {
        "ids": int_array([report.job_id for report in reports]),
        "tokens": text_array([report.token for report in reports]),
        "done": [report.done for report in reports],
        "totals": [report.total for report in reports],
        "messages": [report.message for report in reports],
        "now": now,
    }
    cursor.execute(statement(WRITE_PROGRESS, schema), parameters)


def forget(cursor: Cursor, job_ids: Sequence[int], *, schema: str) -> None:
    """Delete the progress of jobs that have ended without a result that is kept."""
    cursor.execute(statement(FORGET_PROGRESS, schema), {"ids": int_array(job_ids)})


def forget_ended(cursor: Cursor, *, schema: str, after: int = 0) -> int:
    """Look at the rows after this job id, and delete those of ended jobs; return the id to continue after."""
    cursor.execute(statement(FORGET_ENDED, schema), {"after": after, "most": ROWS_PER_STEP})
    looked_at, last = cursor.fetchone()
    return int(last) if looked_at == ROWS_PER_STEP else 0
