"""The repair of what crashes and changes leave behind: places without a claim, and lanes that wait for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.limits.numbers import PARAMETERS
from django_graphile_worker.sql.schema import statement

SWEEP = f"""/* gw:sweep-limits */
select woken, next_key
from :SCHEMA._private_sweep_limits_v1(%(after)s::bigint, %(most)s::int, %(clock)s::timestamptz, {PARAMETERS})"""

FORGET_LANES = """/* gw:forget-lanes */
select :SCHEMA._private_forget_lanes_v1(
    %(seconds)s::float8, %(most)s::int, %(limit_names)s::text[], %(rate_windows)s::float8[])"""

# How many keys one sweep looks at.
MOST_KEYS = 500
# How many lanes and keys are deleted at once.
MOST_FORGOTTEN = 1_000


class Swept(NamedTuple):
    """How many lanes have become ready, and the key after which the next sweep continues; None after the last."""

    woken: int
    next_key: int | None


def sweep(
    cursor: Any, *, schema: str, numbers: Mapping[str, str], after: int | None, clock: datetime | None = None
) -> Swept:
    """Free the places of claims that have ended, and make lanes ready that wait for keys with room."""
    parameters = {"after": after, "most": MOST_KEYS, "clock": clock, **numbers}
    cursor.execute(statement(SWEEP, schema), parameters)
    return Swept(*cursor.fetchone())


def forget_lanes(cursor: Any, *, schema: str, numbers: Mapping[str, str], seconds: float) -> int:
    """Delete lanes that have been empty for so long, and keys that nothing needs; return how many."""
    parameters = {
        "seconds": seconds,
        "most": MOST_FORGOTTEN,
        "limit_names": numbers["limit_names"],
        "rate_windows": numbers["rate_windows"],
    }
    cursor.execute(statement(FORGET_LANES, schema), parameters)
    (found,) = cursor.fetchone()
    return int(found)
