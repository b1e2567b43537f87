"""The repair of what crashes and changes leave behind: places without a claim, lanes that wait for nothing, parked jobs
of tasks that have no limits any more, and lanes and keys that nothing needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.sql.limits.claiming import PARAMETERS
from django_graphile_worker.sql.schema import statement

SWEEP = f"""/* gw:sweep-limits */
select woken, next_key, next_queue
from :SCHEMA._private_sweep_limits(
    %(after_key)s::bigint, %(after_queue)s::int, %(most)s::int, %(clock)s::timestamptz, {PARAMETERS})"""

UNPARK_TASKS = "/* gw:unpark-tasks */ select :SCHEMA._private_unpark_tasks(%(task_ids)s::int[], %(most)s::int)"

FORGET_LANES = """/* gw:forget-lanes */
select :SCHEMA._private_forget_lanes(%(seconds)s::float8, %(most)s::int)"""

FORGET_KEYS = """/* gw:forget-limit-keys */
select next_key from :SCHEMA._private_forget_keys(
    %(seconds)s::float8, %(most)s::int, %(after)s::bigint, %(limit_names)s::text[], %(rate_windows)s::float8[])"""

# How many keys, and how many queues, one sweep looks at.
MAX_SWEPT = 500
# How many jobs of tasks without limits one statement finds.
MAX_UNPARKED = 1_000
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


def unpark_tasks(cursor: Any, task_ids: Collection[int], *, schema: str) -> int:
    """End the parking of jobs of tasks that have no limits any more; return how many were found."""
    if not task_ids:
        return 0
    cursor.execute(statement(UNPARK_TASKS, schema), {"task_ids": int_array(task_ids), "most": MAX_UNPARKED})
    (found,) = cursor.fetchone()
    return int(found)


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
