"""The criteria of a search in the history of attempts, and the ranges of its indexes that meet them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.sql.results import HistoryOutcome


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
_NEWEST = "order by history.ended_at desc, history.job_id desc, history.attempt desc"
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
        return self._select(f"{OPEN} and {IN_SPAN}", f"{_NEWEST} limit %(most_open)s::int")

    def _newest(self, condition: str, order: str = _NEWEST) -> str:
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
        rows = self._newest(condition, _NEWEST.replace("order by", f"order by history.{column} desc,"))
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
