"""The criteria of a search in the history of attempts, and the ranges of its indexes that meet them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
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

# The names of all tasks in the history, found by jumping from one to the next in the index.
ALL_TASKS = """
    name as (
        (select history.task_identifier from :SCHEMA._private_history as history
        order by history.task_identifier limit 1)
        union all
        select (
            select history.task_identifier from :SCHEMA._private_history as history
            where history.task_identifier > name.task_identifier
            order by history.task_identifier limit 1)
        from name where name.task_identifier is not null),"""

Ranges = tuple[str, list[str]]


def ranges_of(criteria: HistoryCriteria, columns: str, bounds: str) -> Ranges:
    """Return what to put before the candidates, and the statements that read them: the first criterion with an index.

    ``columns`` are those of the candidates, ``bounds`` limits their times. The other criteria are conditions.
    """

    def select(condition: str, source: str = ":SCHEMA._private_history as history", order: str = _NEWEST) -> str:
        return f"select {columns} from {source} where {condition} {bounds} {order} limit %(most)s::int"

    def each(parameter: str, column: str) -> str:
        """Read the newest rows of each name: an index has them in the order of time."""
        inner = select(f"history.{column} = given.name")
        return f"select one.* from unnest(%({parameter})s::text[]) as given (name) cross join lateral ({inner}) as one"

    if criteria.ids:
        return "", [select("history.job_id = any (%(ids)s::bigint[])")]
    if criteria.keys:
        return "", [select("history.job_key = any (%(keys)s::text[])")]
    if criteria.anywhere:
        return "", _anywhere(criteria, select, each)
    if criteria.payload:
        return "", [select(_has_words("%(payload)s::text"), order="")]
    if criteria.queues:
        return "", [each("queues", "queue_name")]
    if criteria.tasks:
        return "", [each("tasks", "task_identifier")]
    if criteria.outcomes and Outcome.SUCCEEDED not in criteria.outcomes:
        return "", [select("history.outcome <> 1::smallint")]
    inner = select("history.task_identifier = name.task_identifier")
    return ALL_TASKS, [f"select one.* from name cross join lateral ({inner}) as one"]


def _anywhere(criteria: HistoryCriteria, select: Any, each: Any) -> list[str]:
    ranges = [
        select("history.job_key = any (%(anywhere)s::text[])"),
        each("anywhere", "task_identifier"),
        each("anywhere", "queue_name"),
        select(_has_words("%(words)s::text"), order=""),
    ]
    if any(_is_id(word) for word in criteria.anywhere):
        ranges.append(select("history.job_id = any (%(numbers)s::bigint[])"))
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
    return conditions


def is_met_by_range(criteria: HistoryCriteria) -> bool:
    """Return whether every row of the ranges meets the criteria, so that no other row need be read."""
    given = [name for name in _IN_ORDER if getattr(criteria, name)]
    return len(given) <= 1 and not criteria.workers and not criteria.outcomes and not criteria.errors


# The criteria that have an index, in the order in which ranges_of() chooses.
_IN_ORDER = ("ids", "keys", "anywhere", "payload", "queues", "tasks")
_NAMES = {"keys": "job_key", "tasks": "task_identifier", "queues": "queue_name", "workers": "worker_id"}


def parameters_of(criteria: HistoryCriteria) -> dict[str, Any]:
    """Return the parameters of ranges and conditions."""
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
        "words": " ".join(criteria.anywhere),
        "numbers": [int(word) for word in criteria.anywhere if _is_id(word)],
        "since": since,
        "until": until,
        **{f"error_{number}": text for number, text in enumerate(criteria.errors)},
    }


def _is_id(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 18


def _has_words(parameter: str) -> str:
    return f"{PAYLOAD_WORDS} operator(pg_catalog.@@) {_WORDS.format(word=parameter)} and history.payload is not null"
