"""The repair of what crashes and changes leave behind: places without a claim, and lanes that wait for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.limits.numbers import PARAMETERS
from django_graphile_worker.sql.schema import statement

SWEEP = f"""/* gw:sweep-limits */
select woken, next_key, next_queue
from :SCHEMA._private_sweep_limits_v1(
    %(after_key)s::bigint, %(after_queue)s::int, %(most)s::int, %(clock)s::timestamptz, {PARAMETERS})"""

FORGET_LANES = """/* gw:forget-lanes */
select :SCHEMA._private_forget_lanes_v1(%(seconds)s::float8, %(most)s::int)"""

FORGET_KEYS = """/* gw:forget-limit-keys */
select next_key from :SCHEMA._private_forget_keys_v1(
    %(seconds)s::float8, %(most)s::int, %(after)s::bigint, %(limit_names)s::text[], %(rate_windows)s::float8[])"""

# How many keys, and how many queues, one sweep looks at.
MAX_SWEPT = 500
# How many lanes one statement deletes, and how many keys it looks at.
MAX_FORGOTTEN = 1_000


class Swept(NamedTuple):
    """How many lanes have become ready, and the key and the queue after which the next sweep continues."""

    woken: int = 0
    # None after the last.
    next_key: int | None = None
    next_queue: int | None = None


def sweep(
    cursor: Any, *, schema: str, numbers: Mapping[str, str], after: Swept, clock: datetime | None = None
) -> Swept:
    """Free the places of claims that have ended, and make lanes ready that wait for keys with room or free queues."""
    parameters = {
        "after_key": after.next_key,
        "after_queue": after.next_queue,
        "most": MAX_SWEPT,
        "clock": clock,
        **numbers,
    }
    cursor.execute(statement(SWEEP, schema), parameters)
    return Swept(*cursor.fetchone())


def forget_lanes(cursor: Any, *, schema: str, seconds: float) -> bool:
    """Delete some of the lanes that have been empty for so long; return True if there may be more."""
    cursor.execute(statement(FORGET_LANES, schema), {"seconds": seconds, "most": MAX_FORGOTTEN})
    (found,) = cursor.fetchone()
    return bool(found >= MAX_FORGOTTEN)


def forget_keys(
    cursor: Any, *, schema: str, numbers: Mapping[str, str], seconds: float, after: int | None
) -> int | None:
    """Delete those of the keys behind ``after`` that nothing needs; return the key to continue behind, or None."""
    parameters = {"seconds": seconds, "most": MAX_FORGOTTEN, "after": after}
    windows = {"limit_names": numbers["limit_names"], "rate_windows": numbers["rate_windows"]}
    cursor.execute(statement(FORGET_KEYS, schema), {**parameters, **windows})
    (next_key,) = cursor.fetchone()
    return None if next_key is None else int(next_key)
