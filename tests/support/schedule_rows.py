"""Schedules for tests of pages, with runs that ended in some way."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.operating import execute

ANY = "send_receipt"
OF_WORKERS = ("next_at", "last_tick", "last_job_id", "last_missed_at", "changed_at")


def make_schedule(name: str, task: str = ANY, **values: Any) -> int:
    """Insert a schedule, by default for each hour, and return its id.

    The columns of the workers can be given: `next_at`, `last_tick`, `last_job_id`, `last_missed_at`.
    """
    own = {key: values.pop(key) for key in OF_WORKERS if key in values}
    if not {"cron", "interval", "run_at"} & values.keys():
        values["cron"] = "0 * * * *"
    values = {"name": name, "task": task, **values}
    if "payload" in values:
        values["payload"] = json.dumps(values["payload"])
    columns = ", ".join(f'"{column}"' for column in values)
    places = ", ".join("%s" for _ in values)
    ((schedule_id,),) = execute(
        f"insert into {{schema}}._private_schedules ({columns}) values ({places}) returning id", list(values.values())
    )
    own.setdefault("next_at", datetime.now(UTC) + timedelta(minutes=30))
    assigned = ", ".join(f"{column} = %s" for column in own)
    if values.get("is_enabled", True):
        execute(f"update {{schema}}._private_schedules set {assigned} where id = %s", [*own.values(), schedule_id])
    return int(schedule_id)


def make_run(
    schedule_id: int | None, *, kind: str = "on_time", minutes_ago: float = 0.0, item: str | None = None, **values: Any
) -> int:
    """Insert a row about a run of a schedule or of an item of the crontab, and return its id."""
    tick = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    row = {"schedule_id": schedule_id, "crontab_identifier": item, "tick": tick, "kind": kind, **values}
    columns, places = ", ".join(row), ", ".join("%s" for _ in row)
    ((run_id,),) = execute(
        f"insert into {{schema}}._private_schedule_runs ({columns}) values ({places}) returning id",
        list(row.values()),
    )
    return int(run_id)
