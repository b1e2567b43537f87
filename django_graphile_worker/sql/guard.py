"""Limits for statements that people cause by looking: the queue comes first."""

from __future__ import annotations

from typing import Any

# Times are written and read back as text in page tokens. The planner must neither read a whole table because
# its statistics are old nor compile what runs for a few milliseconds.
SETTINGS = {
    "statement_timeout": "",
    "datestyle": "ISO",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
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
    cursor.execute(f"/* gw:guard */ select {ask}", parameters)
    return dict(zip(wanted, cursor.fetchone()[::2], strict=True))
