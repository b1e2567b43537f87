"""The places of keys, which jobs free when they end, and keys that a task closes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.codecs import int_array, nullable_array, text_array
from django_graphile_worker.sql.schema import statement

FREE_PLACES = """/* gw:free-places */
select :SCHEMA._private_free_places(%(ids)s::bigint[], %(tokens)s::text[], %(queue_ids)s::int[])"""

CLOSE_KEYS = """/* gw:close-keys */
select :SCHEMA._private_close_keys(
    %(names)s::text[], %(texts)s::text[], %(seconds)s::float8[], %(clock)s::timestamptz)"""


class KeyClosing(NamedTuple):
    """A key that a task closes for some seconds."""

    limit_name: str
    text: str
    seconds: float


def free_places(cursor: Any, ended: Sequence[Claim], *, schema: str, queue_ids: Sequence[int] = ()) -> int:
    """Free the places of claims that have ended; return how many lanes have become ready, also lanes of free queues."""
    cursor.execute(
        statement(FREE_PLACES, schema),
        {
            "ids": int_array([claim.id for claim in ended]),
            "tokens": text_array([claim.token for claim in ended]),
            "queue_ids": int_array(queue_ids) if queue_ids else None,
        },
    )
    (woken,) = cursor.fetchone()
    return int(woken)


def close_keys(cursor: Any, closings: Sequence[KeyClosing], *, schema: str, clock: datetime | None = None) -> None:
    """Close keys, so that no job of them starts for some seconds."""
    parameters = {
        "names": text_array([each.limit_name for each in closings]),
        "texts": text_array([each.text for each in closings]),
        "seconds": nullable_array([each.seconds for each in closings]),
        "clock": clock,
    }
    cursor.execute(statement(CLOSE_KEYS, schema), parameters)
