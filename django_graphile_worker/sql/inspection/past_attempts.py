"""Searches the history of attempts, newest first: criteria, as SQL, and pages of what they match.

Each search reads ranges of indexes, or the rows of a span of time (``find_beginning``), and no more than a few thousand
rows, however many days the history has: a search whose other conditions few rows meet returns what it has found, and
where to continue.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection import statement_limits
from django_graphile_worker.sql.results import HistoryOutcome
from django_graphile_worker.sql.statements import statement


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCriteria:
    """What the attempts of a search have in common. An empty tuple means any; several values mean one of them."""

    ids: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    outcomes: tuple[int, ...] = ()
    # Texts in the error.
    errors: tuple[str, ...] = ()
    # Words in the payload.
    payload: tuple[str, ...] = ()
    # Words that are an id, a key, a task or a queue, or in the payload.
    anywhere: tuple[str, ...] = ()
    # Whether the words of `anywhere` are also searched in payloads, which a user without the permission does not see.
    searches_payloads: bool = True
    ended_at: tuple[datetime | None, datetime | None] = (None, None)


# The beginning of a payload, as the index has it. A word that is longer than 2,047 bytes is not in the index.
_PAYLOAD_WORDS = (
    "pg_catalog.to_tsvector('pg_catalog.simple'::pg_catalog.regconfig, pg_catalog.left({row}.payload, 20000))"
    " operator(pg_catalog.@@) pg_catalog.plainto_tsquery('pg_catalog.simple'::pg_catalog.regconfig, {word})"
    " and {row}.payload is not null"
)
_NEWEST_OF_RANGE = "order by history.ended_at desc, history.job_id desc, history.attempt desc"
# The days that are over have indexes of tasks and of words, and the day that is being written has not. Of such a day
# the newest rows are read.
_INDEXED, OPEN = (
    " and history.ended_at < %(open_since)s::timestamptz",
    "history.ended_at >= %(open_since)s::timestamptz",
)
# No index has all rows in the order of time: a search for the newest rows reads a span of time that has enough of them.
IN_SPAN = "history.ended_at >= to_timestamp(%(beginning)s::float8)"
# An index of words does not have its rows in the order of time. So each day is read by itself, the latest first. The
# planner knows the bounds of each day, and so that the index of words finds fewer rows than the index of times.
_OF_DAY = " and history.ended_at >= %(day_{0})s::timestamptz and history.ended_at < %(day_{0}_end)s::timestamptz"


@dataclass(frozen=True, slots=True)
class Ranges:
    """The statements that read the candidates of a search, newest first."""

    columns: str
    # Limits the times of all candidates.
    bounds: str
    # How many days have an index of words.
    days: int = 0

    def of(self, criteria: HistoryCriteria) -> list[str]:
        """Return a statement for each index to read: those of the first criterion that has one."""
        if criteria.ids:
            return [self._unordered("history.job_id = any (%(ids)s::bigint[])")]
        if criteria.keys:
            return [self._each("keys", "job_key")]
        if criteria.anywhere:
            return self._anywhere(criteria)
        if criteria.payload:
            return [self._day_by_day(_has_words("history", "payload") + _INDEXED)]
        if criteria.queues:
            return [self._each("queues", "queue_name")]
        if criteria.tasks:
            return [self._each("tasks", "task_identifier", _INDEXED)]
        if criteria.errors or (criteria.outcomes and HistoryOutcome.SUCCEEDED not in criteria.outcomes):
            return [self._newest("history.outcome <> 1::smallint")]
        return [self._newest(IN_SPAN)]

    def _anywhere(self, criteria: HistoryCriteria) -> list[str]:
        words = " or ".join(f"({_has_words('history', f'word_{number}')})" for number in range(len(criteria.anywhere)))
        in_payloads = [self._day_by_day(f"({words}) {_INDEXED}")] if criteria.searches_payloads else []
        return [
            self._unordered("history.job_id = any (%(numbers)s::bigint[])"),
            self._each("anywhere", "job_key"),
            self._each("anywhere", "queue_name"),
            self._each("anywhere", "task_identifier", _INDEXED),
            *in_payloads,
        ]

    def of_open_days(self) -> str:
        """Return the statement that reads the newest rows of the days without these indexes."""
        return self._select(f"{OPEN} and {IN_SPAN}", f"{_NEWEST_OF_RANGE} limit %(most_open)s::int")

    def _newest(self, condition: str, order: str = _NEWEST_OF_RANGE) -> str:
        return self._select(condition, f"{order} limit %(most)s::int")

    def _unordered(self, condition: str) -> str:
        return self._select(condition, "limit %(most_unordered)s::int")

    def _each(self, parameter: str, column: str, more: str = "") -> str:
        """Read the newest rows of each name. Rows are compared, as only the index of the names has that order."""
        pair = f"(history.{column}, history.ended_at)"
        condition = (
            f"{pair} <= (given.name, %(newest)s::timestamptz) and {pair} >= (given.name, %(oldest)s::timestamptz)"
            f" and history.{column} is not null {more}"
        )
        rows = self._newest(condition, _NEWEST_OF_RANGE.replace("order by", f"order by history.{column} desc,"))
        return f"select one.* from unnest(%({parameter})s::text[]) as given (name) cross join lateral ({rows}) as one"

    def _day_by_day(self, condition: str) -> str:
        days = [f"({self._unordered(condition + _OF_DAY.format(number))})" for number in range(self.days)]
        if not days:
            return self._unordered("false")
        return f"select * from ({' union all '.join(days)}) as one limit %(most_unordered)s::int"

    def _select(self, condition: str, rest: str) -> str:
        return f"select {self.columns} from :SCHEMA._private_history as history where {condition} {self.bounds} {rest}"


def reads_open_days(criteria: HistoryCriteria) -> bool:
    """Return whether the search reads days that have no index for it yet, so that it may stop before their end."""
    return not (criteria.ids or criteria.keys) and bool(
        criteria.anywhere or criteria.payload or (criteria.tasks and not criteria.queues)
    )


def conditions_of(criteria: HistoryCriteria) -> list[str]:
    """Return the conditions that each candidate must meet, whichever range it comes from."""
    conditions = []
    if criteria.ids:
        conditions.append("candidate.job_id = any (%(ids)s::bigint[])")
    for parameter, column in _NAMES.items():
        if getattr(criteria, parameter):
            conditions.append(f"candidate.{column} = any (%({parameter})s::text[])")
    if criteria.outcomes:
        conditions.append("candidate.outcome = any (%(outcomes)s::smallint[])")
    conditions += [f"strpos(candidate.error, %(error_{number})s::text) > 0" for number, _ in enumerate(criteria.errors)]
    if criteria.payload:
        conditions.append(_has_words("candidate", "payload"))
    return conditions + [_has_anywhere(criteria, number) for number, _ in enumerate(criteria.anywhere)]


def _has_anywhere(criteria: HistoryCriteria, number: int) -> str:
    columns = ("job_id::text", "job_key", "task_identifier", "queue_name")
    matches = [f"candidate.{column} = %(word_{number})s::text" for column in columns]
    if criteria.searches_payloads:
        matches.append(f"({_has_words('candidate', f'word_{number}')})")
    return f"({' or '.join(matches)})"


def is_met_by_range(criteria: HistoryCriteria) -> bool:
    """Return whether every row of the ranges meets the criteria, so that no other row need be read."""
    given = [name for name in ("ids", "keys", "anywhere", "payload", "queues", "tasks") if getattr(criteria, name)]
    others = (criteria.workers, criteria.outcomes, criteria.errors, criteria.anywhere[1:])
    return len(given) <= 1 and not any(others)


# The criteria that are names, with their columns.
_NAMES = {"keys": "job_key", "tasks": "task_identifier", "queues": "queue_name", "workers": "worker_id"}


def parameters_of(criteria: HistoryCriteria, days: Sequence[datetime]) -> dict[str, Any]:
    """Return the parameters of ranges and conditions; ``days`` are when the days with an index of words begin."""
    since, until = criteria.ended_at
    return {
        "ids": list(criteria.ids),
        "keys": list(criteria.keys),
        "tasks": list(criteria.tasks),
        "queues": list(criteria.queues),
        "workers": list(criteria.workers),
        "outcomes": list(criteria.outcomes),
        "payload": " ".join(criteria.payload),
        "anywhere": list(criteria.anywhere),
        **{f"word_{number}": word for number, word in enumerate(criteria.anywhere)},
        "numbers": [int(word) for word in criteria.anywhere if _is_id(word)],
        **{f"day_{number}": day for number, day in enumerate(days)},
        **{f"day_{number}_end": day + timedelta(days=1) for number, day in enumerate(days)},
        "since": since,
        "until": until,
        "oldest": since or "-infinity",
        "newest": until or "infinity",
        **{f"error_{number}": text for number, text in enumerate(criteria.errors)},
    }


def _is_id(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 18


def _has_words(row: str, parameter: str) -> str:
    return _PAYLOAD_WORDS.format(row=row, word=f"%({parameter})s::text")


# How many rows are read for a page, if there are conditions beside the index.
MAX_EXAMINED = 5_000
# How many attempts with a word a search looks at, beginning with the latest day.
MAX_UNORDERED = 2_000
# How many days a search for words reads: each takes the planner some time.
MAX_DAYS = 100
# How many characters of an error a list shows; the page of a job shows the whole error.
MAX_ERROR_LENGTH = 500
MAX_ATTEMPTS_SHOWN = 200
MAX_ATTEMPT = 2**15 - 1

COLUMNS = """history.ended_at, history.started_at, history.added_at, history.run_at, history.job_id, history.attempt,
    history.outcome, history.task_identifier, history.worker_id, history.queue_name, history.job_key, history.error,
    history.payload"""
_NEWEST = "order by {0}.ended_at desc, {0}.job_id desc, {0}.attempt desc"


class HistoryRow(NamedTuple):
    """A row of the history: one attempt. In a list, the error is cut, and the payload is None."""

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

    rows: list[HistoryRow]
    next_token: str | None
    # Whether the search ended before all rows were read, so that the page is not full.
    is_cut_off: bool
    # Whether only the newest attempts of the current day were searched, which has no index of tasks and words yet.
    is_day_cut_off: bool = False


def find_attempts(
    cursor: Any, criteria: HistoryCriteria, *, schema: str, limit: int, after: str | None = None
) -> HistoryPage:
    """Return the newest attempts that meet the criteria; ``after`` is the token of an earlier page."""
    place = _place(after)
    most = limit + 1 if is_met_by_range(criteria) else MAX_EXAMINED
    indexed_days = _indexed_days(cursor, schema=schema) if reads_open_days(criteria) else []
    open_since = _open_since(indexed_days) if reads_open_days(criteria) else "infinity"
    days = _days_of(criteria, indexed_days)
    text = _statement(criteria, conditions_of(criteria), has_place=place is not None, days=len(days))
    parameters = parameters_of(criteria, days) | {"open_since": open_since} | (place or {})
    parameters |= {"most": most, "most_unordered": MAX_UNORDERED, "most_open": MAX_EXAMINED, "wanted": limit + 1}
    with _index_scans(cursor):
        if IN_SPAN in text:
            parameters["beginning"] = _beginning(
                cursor, criteria, parameters, schema=schema, has_place=place is not None
            )
        cursor.execute(statement(text, schema), parameters)
        *found, (examined, last, examined_of_day) = ((row[:-3] if row[0] else row[-3:]) for row in cursor.fetchall())
    rows = [HistoryRow._make(row) for row in found]
    is_day_cut_off = examined_of_day >= MAX_EXAMINED
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
    ][:MAX_DAYS]


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
        left(candidate.error, {MAX_ERROR_LENGTH}), null::text, {token}, null::bigint, null::text, null::bigint
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
order by history.ended_at desc limit {MAX_ATTEMPTS_SHOWN}"""


def attempts_of_job(cursor: Any, job_id: int, *, schema: str) -> list[HistoryRow]:
    """Return the attempts of one job with their errors and payloads, the latest first."""
    with _index_scans(cursor):
        cursor.execute(statement(ATTEMPTS_OF_JOB, schema), {"id": job_id})
        return [HistoryRow._make(row) for row in cursor.fetchall()]


# What the parts of a page token look like: a time, the id of a job, and the number of an attempt.
_PLACE = (
    re.compile(
        r"-?infinity|[0-9]{4,6}-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
        r"[-+][0-9]{2}(:[0-9]{2}){0,2}( BC)?"
    ),
    re.compile(r"[0-9]{1,18}"),
    re.compile(r"-?[0-9]{1,5}"),
)


def _place(token: str | None) -> dict[str, Any] | None:
    """Return the values of a page token, or None if the text is not a token."""
    parts = token.split("~") if token else []
    if len(parts) != len(_PLACE) or not all(kind.fullmatch(part) for kind, part in zip(_PLACE, parts, strict=True)):
        return None
    attempt = min(int(parts[2]), MAX_ATTEMPT)
    return {"after_time": parts[0], "after_id": int(parts[1]), "after_attempt": attempt, "newest": parts[0]}


@contextmanager
def _index_scans(cursor: Any) -> Iterator[None]:
    """Let PostgreSQL use the index of words, which it can only scan as a bitmap, and limit what a frequent word finds.

    The other searches read their indexes in the order of time.
    """
    before = statement_limits.change_settings(
        cursor, {"enable_bitmapscan": "on", "enable_incremental_sort": "on", "gin_fuzzy_search_limit": "20000"}
    )
    yield
    statement_limits.change_settings(cursor, before)


# How far back a search reads, so that it finds enough rows and not many more. No index has the rows in the order of
# time: a B-tree of the times would cost the statements that end jobs a quarter of what the history costs them. The BRIN
# index finds the rows of a span of time, and the span is found by counting the rows of a few spans up to a limit.

# Seconds.
FIRST_SPAN = 1.0
# A span of a century has all rows.
MAX_SPAN = 3.2e9
# Two spans that differ by less are the same: the rows of a statement mostly have the same time.
SHORTEST_DIFFERENCE = 0.001
# A span that has too few rows grows at least and at most so many times.
MIN_GROWTH, MAX_GROWTH = 2.0, 64.0
# How many rows a span may have beyond twice those that are enough. The BRIN index finds as many at once.
MAX_BEYOND = 1_000

SPAN_LIMITS = """/* gw:history-limits */
select extract(epoch from least(%(newest)s::timestamptz, clock_timestamp()))::float8,
    extract(epoch from greatest(%(oldest)s::timestamptz, %(floor)s::timestamptz))::float8"""

COUNT_SPAN = """/* gw:history-span */
select count(*) from (
    select from :SCHEMA._private_history as history
    where history.ended_at >= to_timestamp(%(beginning)s::float8) {bounds} limit %(most_counted)s::int) as found"""


def find_beginning(cursor: Any, *, schema: str, bounds: str, parameters: Mapping[str, Any], enough: int) -> float:
    """Return from which time on, in seconds since 1970, enough rows are within the bounds; minus infinity for all.

    The bounds leave nothing that is newer than the parameter ``newest``, or older than ``oldest`` and ``floor``.
    """
    cursor.execute(statement(SPAN_LIMITS, schema), parameters)
    end, oldest = cursor.fetchone()
    longest, most = min(max(end - oldest, 0.0), MAX_SPAN), 2 * enough + MAX_BEYOND

    def beginning_of(span: float) -> float:
        return -math.inf if span >= longest else end - span

    def count(span: float) -> int:
        counted = {"beginning": beginning_of(span), "most_counted": most}
        cursor.execute(statement(COUNT_SPAN.format(bounds=bounds), schema), {**parameters, **counted})
        return int(cursor.fetchone()[0])

    return beginning_of(find_span(count, longest=longest, enough=enough, most=most))


def find_span(count: Callable[[float], int], *, longest: float, enough: int, most: int) -> float:
    """Return a span that has at least ``enough`` rows and, if there is one, fewer than ``most``.

    ``count`` returns how many rows a span has, counting no further than ``most``. The result is ``longest`` if all rows
    are too few.
    """
    too_short, too_long, span = 0.0, math.inf, min(FIRST_SPAN, longest)
    while True:
        found = count(span)
        if found >= most:
            too_long = span
        elif found >= enough or span >= longest:
            return span
        else:
            too_short = span
        if too_long - too_short < SHORTEST_DIFFERENCE:
            return too_long
        span = _between(too_short, too_long) if too_long < math.inf else min(_longer(span, found, enough), longest)


def _longer(span: float, found: int, enough: int) -> float:
    """Return the span that has enough rows, with some to spare, if the rows before are as many in the same time."""
    return span * min(max(2 * enough / max(found, 1), MIN_GROWTH), MAX_GROWTH)


def _between(too_short: float, too_long: float) -> float:
    """Return a span between two: by their ratio if that is large, and otherwise by their difference."""
    if too_short and too_long > 16 * too_short:
        return math.sqrt(too_short * too_long)
    return (too_short + too_long) / 2
