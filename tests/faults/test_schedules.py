"""Schedules of the database, fired by real workers: each tick once, whatever happens to the workers."""

from __future__ import annotations

from typing import Any

from tests.faults.processes import Fleet
from tests.faults.world import World


def add_schedule(world: World, name: str, **columns: Any) -> int:
    """Add a schedule of the task ``quick``, each second, as a program of another language would; return its id."""
    columns = {"name": name, "task": "quick", "interval": "1 second", **columns}
    names = ", ".join(f'"{column}"' for column in columns)
    places = ", ".join(["%s"] * len(columns))
    text = f"insert into {{schema}}._private_schedules ({names}) values ({places}) returning id"
    return int(world.value(text, *columns.values()))


def test_a_new_schedule__fires_at_once_without_a_restart(world: World, fleet: Fleet) -> None:
    worker = fleet.start()
    worker.wait_for("is listening")
    add_schedule(world, "often")
    world.wait_for("end", 2)
    assert worker.stop() == 0
