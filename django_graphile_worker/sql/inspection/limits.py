"""Limits for statements that people cause by looking: the queue comes first."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.qualification import qualified

# Times are written and read back as text in page tokens. The planner's statistics are old right after jobs were
# added by the thousand, and it must not be talked out of the one right plan then: each range is asked for in an
# order that only its own index has, and sorting, reading whole tables and joining all with all are discouraged.
SETTINGS = {
    "statement_timeout": "",
    "datestyle": "ISO",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}


def guard(cursor: Any, *, timeout: float) -> dict[str, str]:
    """Limit the rest of this transaction; returns the settings as they were."""
    wanted = SETTINGS | {"statement_timeout": f"{max(int(timeout * 1000), 1)}ms"}
    return change(cursor, wanted)


def change(cursor: Any, wanted: dict[str, str]) -> dict[str, str]:
    """Change settings until the transaction ends; returns them as they were."""
    parameters = [value for name, setting in wanted.items() for value in (name, name, setting)]
    ask = ", ".join("current_setting(%s), set_config(%s, %s, true)" for _ in wanted)
    cursor.execute(qualified(f"/* gw:guard */ select {ask}"), parameters)
    return dict(zip(wanted, cursor.fetchone()[::2], strict=True))
