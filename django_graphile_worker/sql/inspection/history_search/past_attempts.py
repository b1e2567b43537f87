"""Searches the history of attempts, newest first.

Each search reads ranges of indexes, or the rows of a span of time (``spans``), and no more than a few thousand
rows, however many days the history has: a search whose other conditions few rows meet returns what it has found, and
where to continue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection import limits
from django_graphile_worker.sql.inspection.history_search.criteria import (
    IN_SPAN,
    OPEN,
    HistoryCriteria,
    Ranges,
    conditions_of,
    is_met_by_range,
    parameters_of,
    reads_open_days,
)
from django_graphile_worker.sql.inspection.history_search.spans import find_beginning
from django_graphile_worker.sql.inspection.job_search.search import PLACES
from django_graphile_worker.sql.statements import statement

# How many rows are read for a page, if there are conditions beside the index.
MOST_EXAMINED = 5_000
# How many attempts with a word a search looks at, beginning with the latest day.
MOST_UNORDERED = 2_000
# How many days a search for words reads: each takes the planner some time.
MOST_DAYS = 100
# How many characters of an error a list shows; the page of a job shows the whole error.
LONGEST_ERROR = 500
MOST_ATTEMPTS = 200
LARGEST_ATTEMPT = 2**15 - 1

COLUMNS = """history.ended_at, history.started_at, history.added_at, history.run_at, history.job_id, history.attempt,
    history.outcome, history.task_identifier, history.worker_id, history.queue_name, history.job_key, history.error,
    history.payload"""
_NEWEST = "order by {0}.ended_at desc, {0}.job_id desc, {0}.attempt desc"


class PastAttempt(NamedTuple):
    """A row of the history. In a list, the error is cut, and the payload is None."""

    ended_at: Any
    started_at: Any
    added_at: Any
    run_at: Any
    job_id: int
    attempt: int
    outcome: int
    task_identifier: str
    worker_id: str | None
    queue_name: str | None
    job_key: str | None
    error: str | None
    payload_text: str | None
    # Where the list continues after this row.
    token: str

    @property
    def seconds(self) -> float | None:
        """How long the attempt took; None if it never began, or if that is unknown."""
        return None if self.started_at is None else max((self.ended_at - self.started_at).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of attempts, and where the next page begins (None: this was the last)."""

    rows: list[PastAttempt]
    next_token: str | None
    # Whether the search ended before all rows were read, so that the page is not full.
    is_cut_off: bool
    # Whether only the newest attempts of the current day were searched, which has no index of tasks and words yet.
    is_day_cut_off: bool = False


def find(cursor: Any, criteria: HistoryCriteria, *, schema: str, limit: int, after: str | None = None) -> HistoryPage:
    """Return the newest attempts that meet the criteria; ``after`` is the token of an earlier page."""
    place = _place(after)
    most = limit + 1 if is_met_by_range(criteria) else MOST_EXAMINED
    indexed_days = _indexed_days(cursor, schema=schema) if reads_open_days(criteria) else []
    open_since = _open_since(indexed_days) if reads_open_days(criteria) else "infinity"
    days = _days_of(criteria, indexed_days)
    text = _statement(criteria, conditions_of(criteria), has_place=place is not None, days=len(days))
    parameters = parameters_of(criteria, days) | {"open_since": open_since} | (place or {})
    parameters |= {"most": most, "most_unordered": MOST_UNORDERED, "most_open": MOST_EXAMINED, "wanted": limit + 1}
    with _index_scans(cursor):
        if IN_SPAN in text:
            parameters["beginning"] = _beginning(
                cursor, criteria, parameters, schema=schema, has_place=place is not None
            )
        cursor.execute(statement(text, schema), parameters)
        *found, (examined, last, examined_of_day) = ((row[:-3] if row[0] else row[-3:]) for row in cursor.fetchall())
    rows = [PastAttempt._make(row) for row in found]
    is_day_cut_off = examined_of_day >= MOST_EXAMINED
    if len(rows) > limit:
        return HistoryPage(rows[:limit], rows[limit - 1].token, is_cut_off=False, is_day_cut_off=is_day_cut_off)
    is_cut_off = examined >= most
    return HistoryPage(rows, last if is_cut_off else None, is_cut_off=is_cut_off, is_day_cut_off=is_day_cut_off)


def _beginning(
    cursor: Any, criteria: HistoryCriteria, parameters: dict[str, Any], *, schema: str, has_place: bool
) -> float:
    """Return from which time on the search reads the newest rows: of all days, or of the days without indexes."""
    bounds, enough, floor = _bounds(criteria, has_place), parameters["most"], "-infinity"
    if reads_open_days(criteria):
        bounds, enough, floor = f"{bounds} and {OPEN}", parameters["most_open"], parameters["open_since"]
    return find_beginning(
        cursor, schema=schema, bounds=bounds, parameters={**parameters, "floor": floor}, enough=enough
    )


# The indexes of a day are made after its end, from the oldest day on, and this one last.
INDEXED_DAYS = """/* gw:history-indexed */
select substr(class.relname::text, 18, 8) from pg_class as class
where class.relnamespace = (select space.oid from pg_namespace as space where space.nspname = :'SCHEMA')
    and class.relkind = 'i' and class.relname::text ~ '^_private_history_[0-9]{8}_task$'::text
order by class.relname desc"""


def _indexed_days(cursor: Any, *, schema: str) -> list[datetime]:
    """Return the beginnings of the days that have indexes of tasks and words, the latest first."""
    cursor.execute(statement(INDEXED_DAYS, schema))
    return [datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC) for (day,) in cursor.fetchall()]


def _open_since(indexed_days: list[datetime]) -> Any:
    """Return the time from which on the history has no indexes of tasks and words."""
    return indexed_days[0] + timedelta(days=1) if indexed_days else "-infinity"


def _days_of(criteria: HistoryCriteria, indexed_days: list[datetime]) -> list[datetime]:
    """Return the days that a search for words reads."""
    if not (criteria.payload or (criteria.anywhere and criteria.searches_payloads)):
        return []
    since, until = criteria.ended_at
    one_day = timedelta(days=1)
    return [
        day for day in indexed_days if (until is None or day <= until) and (since is None or day + one_day >= since)
    ][:MOST_DAYS]


def _statement(criteria: HistoryCriteria, conditions: list[str], *, has_place: bool, days: int) -> str:
    ranges = Ranges(COLUMNS, _bounds(criteria, has_place), days)
    union = " union ".join(f"({each})" for each in ranges.of(criteria))
    of_open_days = f"union ({ranges.of_open_days()})" if reads_open_days(criteria) else ""
    token = "concat(candidate.ended_at::text, '~', candidate.job_id, '~', candidate.attempt)"
    return f"""/* gw:history */
    with indexed as materialized (
        select * from ({union}) as candidate {_NEWEST.format("candidate")} limit %(most)s::int),
    candidate as materialized (select * from indexed {of_open_days}),
    page as (
        select candidate.* from candidate where {" and ".join(conditions) or "true"}
        {_NEWEST.format("candidate")} limit %(wanted)s::int)
    (select {readable("candidate.ended_at")}, {readable("candidate.started_at")}, {readable("candidate.added_at")},
        {readable("candidate.run_at")}, candidate.job_id, candidate.attempt, candidate.outcome,
        candidate.task_identifier, candidate.worker_id, candidate.queue_name, candidate.job_key,
        left(candidate.error, {LONGEST_ERROR}), null::text, {token}, null::bigint, null::text, null::bigint
    from page as candidate {_NEWEST.format("candidate")})
    union all
    select null, null, null, null, null, null, null, null, null, null, null, null, null, null,
        (select count(*) from indexed),
        (select {token} from indexed as candidate
            order by candidate.ended_at, candidate.job_id, candidate.attempt limit 1),
        (select count(*) from candidate where candidate.ended_at >= %(open_since)s::timestamptz)"""


def _bounds(criteria: HistoryCriteria, has_place: bool) -> str:
    since, until = criteria.ended_at
    bounds = ""
    if since is not None:
        bounds += " and history.ended_at >= %(since)s::timestamptz"
    if until is not None:
        bounds += " and history.ended_at <= %(until)s::timestamptz"
    if has_place:
        bounds += """ and history.ended_at <= %(after_time)s::timestamptz
            and (history.ended_at, history.job_id, history.attempt)
                < (%(after_time)s::timestamptz, %(after_id)s::bigint, %(after_attempt)s::smallint)"""
    return bounds


ATTEMPTS_OF_JOB = f"""/* gw:history-of-job */
select {readable("history.ended_at")}, {readable("history.started_at")}, {readable("history.added_at")},
    {readable("history.run_at")}, history.job_id, history.attempt, history.outcome, history.task_identifier,
    history.worker_id, history.queue_name, history.job_key, history.error, history.payload, ''
from :SCHEMA._private_history as history
where history.job_id = %(id)s::bigint
order by history.ended_at desc limit {MOST_ATTEMPTS}"""


def attempts_of_job(cursor: Any, job_id: int, *, schema: str) -> list[PastAttempt]:
    """Return the attempts of one job with their errors and payloads, the latest first."""
    with _index_scans(cursor):
        cursor.execute(statement(ATTEMPTS_OF_JOB, schema), {"id": job_id})
        return [PastAttempt._make(row) for row in cursor.fetchall()]


def _place(token: str | None) -> dict[str, Any] | None:
    """Return the values of a page token, or None if the text is not a token."""
    parts = token.split("~") if token else []
    kinds = [PLACES["timestamptz"], PLACES["bigint"], PLACES["int"]]
    if len(parts) != len(kinds) or not all(kind.fullmatch(part) for kind, part in zip(kinds, parts, strict=True)):
        return None
    attempt = min(int(parts[2]), LARGEST_ATTEMPT)
    return {"after_time": parts[0], "after_id": int(parts[1]), "after_attempt": attempt, "newest": parts[0]}


@contextmanager
def _index_scans(cursor: Any) -> Iterator[None]:
    """Let PostgreSQL use the index of words, which it can only scan as a bitmap, and limit what a frequent word finds.

    The other searches read their indexes in the order of time.
    """
    before = limits.change_settings(
        cursor, {"enable_bitmapscan": "on", "enable_incremental_sort": "on", "gin_fuzzy_search_limit": "20000"}
    )
    yield
    limits.change_settings(cursor, before)
