"""Limits for statements that inspect jobs: they must not slow down the workers."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.statements import qualified

# The date style is fixed because page tokens hold times as text.
SETTINGS = {
    "statement_timeout": "",
    "datestyle": "ISO",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
# The statistics of the planner are outdated right after thousands of jobs were added. Each range is selected in an
# order that only its own index has, and sorts, scans of whole tables, hash joins and merge joins are switched off, so
# that one plan remains.
FIXED_PLAN = dict.fromkeys(
    (
        "enable_seqscan",
        "enable_bitmapscan",
        "enable_sort",
        "enable_incremental_sort",
        "enable_hashjoin",
        "enable_mergejoin",
    ),
    "off",
)


def limit_statements(
    cursor: Any, *, timeout: float, lock_timeout: float | None = None, has_fixed_plan: bool = True
) -> dict[str, str]:
    """Limit the statements of this transaction from now on, and their waits for locks; return the old settings."""
    wanted = SETTINGS | (FIXED_PLAN if has_fixed_plan else {}) | {"statement_timeout": _milliseconds(timeout)}
    if lock_timeout is not None:
        wanted |= {"lock_timeout": _milliseconds(lock_timeout)}
    return change_settings(cursor, wanted)


def _milliseconds(seconds: float) -> str:
    return f"{max(int(seconds * 1000), 1)}ms"


def change_settings(cursor: Any, wanted: dict[str, str]) -> dict[str, str]:
    """Change settings until the transaction ends; return the old settings."""
    parameters = [value for name, setting in wanted.items() for value in (name, name, setting)]
    columns = ", ".join("current_setting(%s), set_config(%s, %s, true)" for _ in wanted)
    cursor.execute(qualified(f"/* gw:guard */ select {columns}"), parameters)
    return dict(zip(wanted, cursor.fetchone()[::2], strict=True))
