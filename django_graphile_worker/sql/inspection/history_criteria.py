"""The criteria of a search in the history of attempts, and the ranges of its indexes that meet them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any


class Outcome(IntEnum):
    """How an attempt ended: the values of the column."""

    SUCCEEDED = 1
    # It is tried again.
    RETRIED = 2
    # Permanently.
    FAILED = 3
    INTERRUPTED = 4
    # Its worker died.
    LOST = 5
    REMOVED = 6
    FAILED_BY_OPERATOR = 7


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
    ended_at: tuple[datetime | None, datetime | None] = (None, None)


# The beginning of a payload, as the index has it. A word that is longer than 2,047 bytes is not in the index.
PAYLOAD_WORDS = (
    "pg_catalog.to_tsvector('pg_catalog.simple'::pg_catalog.regconfig, pg_catalog.left(history.payload, 20000))"
)
_WORDS = "pg_catalog.plainto_tsquery('pg_catalog.simple'::pg_catalog.regconfig, {word})"
_NEWEST = "order by history.ended_at desc, history.job_id desc, history.attempt desc"


def ranges_of(criteria: HistoryCriteria, columns: str, bounds: str) -> list[str]:
    """Return the statements that read the candidates, from the index of the first criterion that has one.

    ``columns`` are those of the candidates, ``bounds`` limits their times. The other criteria are conditions.
    """

    def select(condition: str, order: str = _NEWEST) -> str:
        most = "most" if order else "most_unordered"
        return f"""select {columns} from :SCHEMA._private_history as history
            where {condition} {bounds} {order} limit %({most})s::int"""

    def each(parameter: str, column: str) -> str:
        """Read the newest rows of each name. Rows are compared, as only the index of the names has that order."""
        pair = f"(history.{column}, history.ended_at)"
        inner = select(
            f"{pair} <= (given.name, %(newest)s::timestamptz) and {pair} >= (given.name, %(oldest)s::timestamptz)"
            f" and history.{column} is not null",
            order=_NEWEST.replace("order by", f"order by history.{column} desc,"),
        )
        return f"select one.* from unnest(%({parameter})s::text[]) as given (name) cross join lateral ({inner}) as one"

    if criteria.ids:
        return [select("history.job_id = any (%(ids)s::bigint[])", order="")]
    if criteria.keys:
        return [_day_by_day(select("history.job_key = any (%(keys)s::text[])" + _OF_DAY, order=""))]
    if criteria.anywhere:
        return _anywhere(criteria, select, each)
    if criteria.payload:
        return [_day_by_day(select(_has_words("%(payload)s::text") + _OF_DAY, order=""))]
    if criteria.queues:
        return [each("queues", "queue_name")]
    if criteria.tasks:
        return [each("tasks", "task_identifier")]
    if criteria.errors or (criteria.outcomes and Outcome.SUCCEEDED not in criteria.outcomes):
        return [select("history.outcome <> 1::smallint")]
    return [select("true")]


# An index of keys or of words does not have its rows in the order of time. So each day is read by itself, the latest
# first.
_OF_DAY = """ and history.ended_at >= %(last_day)s::timestamptz - day.number::float8 * interval '1 day'
    and history.ended_at < %(last_day)s::timestamptz - day.number::float8 * interval '1 day' + interval '1 day'"""


def _day_by_day(select: str) -> str:
    return f"""select one.* from generate_series(0, %(days)s::int) as day (number)
        cross join lateral ({select}) as one limit %(most_unordered)s::int"""


def _anywhere(criteria: HistoryCriteria, select: Any, each: Any) -> list[str]:
    ranges = [
        _day_by_day(select("history.job_key = any (%(anywhere)s::text[])" + _OF_DAY, order="")),
        each("anywhere", "task_identifier"),
        each("anywhere", "queue_name"),
        _day_by_day(select(_has_some_word(criteria) + _OF_DAY, order="")),
    ]
    if any(_is_id(word) for word in criteria.anywhere):
        ranges.append(select("history.job_id = any (%(numbers)s::bigint[])", order=""))
    return ranges


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
        conditions.append(_has_words("%(payload)s::text").replace("history.", "candidate."))
    # The ranges have the rows that match one of the words.
    words = enumerate(criteria.anywhere) if len(criteria.anywhere) > 1 else ()
    return conditions + [_has_anywhere(number) for number, _ in words]


def _has_anywhere(number: int) -> str:
    word = f"%(word_{number})s::text"
    columns = ("job_id::text", "job_key", "task_identifier", "queue_name")
    matches = [f"candidate.{column} = {word}" for column in columns]
    return f"({' or '.join(matches)} or ({_has_words(word).replace('history.', 'candidate.')}))"


def _has_some_word(criteria: HistoryCriteria) -> str:
    words = [f"({_has_words(f'%(word_{number})s::text')})" for number, _ in enumerate(criteria.anywhere)]
    return f"({' or '.join(words)})"


def is_met_by_range(criteria: HistoryCriteria) -> bool:
    """Return whether every row of the ranges meets the criteria, so that no other row need be read."""
    given = [name for name in _IN_ORDER if getattr(criteria, name)]
    return (
        len(given) <= 1
        and len(criteria.anywhere) <= 1
        and not criteria.workers
        and not criteria.outcomes
        and not criteria.errors
    )


# The criteria that have an index, in the order in which ranges_of() chooses.
_IN_ORDER = ("ids", "keys", "anywhere", "payload", "queues", "tasks")
_NAMES = {"keys": "job_key", "tasks": "task_identifier", "queues": "queue_name", "workers": "worker_id"}


def parameters_of(criteria: HistoryCriteria, *, days: int) -> dict[str, Any]:
    """Return the parameters of ranges and conditions; ``days`` is how far back a search for keys or words reads."""
    since, until = criteria.ended_at
    now = datetime.now(UTC)
    last = min(until or now, now)
    first = max(since or last - timedelta(days=days), last - timedelta(days=days))
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
        # Days begin at midnight UTC, as the partitions do. The clock of the database may be ahead.
        "last_day": last.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1),
        "days": max((last - first).days + 2, 1),
        "since": since,
        "until": until,
        "oldest": since or "-infinity",
        "newest": until or "infinity",
        **{f"error_{number}": text for number, text in enumerate(criteria.errors)},
    }


def _is_id(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 18


def _has_words(parameter: str) -> str:
    return f"{PAYLOAD_WORDS} operator(pg_catalog.@@) {_WORDS.format(word=parameter)} and history.payload is not null"
