"""Real workers for several installations."""

from __future__ import annotations

import json

import pytest

from tests.faults.processes import Fleet, Wait
from tests.faults.world import World

NAMED = {"FAULT_INSTALLATIONS": json.dumps({"reports": {"SCHEMA": "reports_worker"}})}


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.chaos)])
def test_one_command__serves_several_installations(
    world: World, fleet: Fleet, wait_until: Wait, processes: int
) -> None:
    assert fleet.start(command=("migrate",), environment=NAMED, is_ready=False).wait() == 0
    try:
        worker = fleet.start(
            "--installation", "default", "--installation", "reports", "--processes", str(processes), environment=NAMED
        )
        world.add("quick")
        world.query("select reports_worker.add_job('quick')")
        world.wait_for("end", 2)
        world.wait_until_empty()
        wait_until(lambda: not world.value("select count(*) from reports_worker._private_jobs"))
        worker.wait_for(r"\[reports\] quick #\d+ succeeded")
        worker.wait_for(r"\[default\] quick #\d+ succeeded")
        assert worker.stop() == 0
        assert world.value("select count(*) from reports_worker._private_workers") == 0
    finally:
        world.query("drop schema if exists reports_worker cascade")
