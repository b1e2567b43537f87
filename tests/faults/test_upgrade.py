"""An upgrade and a rollback while jobs run: the earlier version, the new migrations, both versions, the new version.

The earlier version comes from the git history of this repository, so the tests need a clone with it.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.conftest import environment_for, migrate
from tests.faults.processes import CHECKOUT, Fleet, Wait, Zygote
from tests.faults.world import LEASES, World
from tests.support.database_server import DatabaseServer

# The last version whose schema ends with migration 0004; UPGRADE_FROM names another commit.
EARLIER = os.environ.get("UPGRADE_FROM", "b609032b0bf99350c0db56e462c842f69c91451f")
LAST_MIGRATION_THEN = "0004_indexes"
GIT = shutil.which("git")


def read_earlier_version() -> bytes | None:
    if GIT is None:
        return None
    archived = subprocess.run([GIT, "archive", EARLIER], cwd=CHECKOUT, capture_output=True, check=False)
    return archived.stdout if archived.returncode == 0 else None


pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def earlier_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = read_earlier_version()
    if archive is None:
        pytest.skip(f"the commit {EARLIER} is not here (git fetch --unshallow)")
    directory = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
    return directory


def run_earlier(checkout: Path, url: str, *arguments: str) -> None:
    manage = str(checkout / "testproject" / "manage.py")
    environment = environment_for(url) | {"PYTHONPATH": str(checkout)}
    subprocess.run([sys.executable, manage, *arguments], cwd=checkout, env=environment, check=True, timeout=100)


@pytest.fixture
def old_world(
    earlier_checkout: Path, database_server: DatabaseServer, worker_schema: str, wait_until: Wait
) -> Iterator[World]:
    """A database that the earlier version has migrated."""
    name = database_server.create_database()
    url = database_server.url(name)
    run_earlier(earlier_checkout, url, "migrate", "-v0")
    with closing(World(url, worker_schema, wait_until)) as world:
        world.prepare_history()
        yield world
    database_server.drop_database(name)


@pytest.fixture
def old_fleet(
    old_world: World, earlier_checkout: Path, zygote: Zygote, tmp_path: Path, wait_until: Wait
) -> Iterator[Fleet]:
    directory = tmp_path / "old"
    directory.mkdir()
    environment = environment_for(old_world.url) | {"PYTHONPATH": str(earlier_checkout)}
    with closing(Fleet(zygote, directory, environment, wait_until, checkout=earlier_checkout)) as fleet:
        yield fleet


@pytest.fixture
def new_fleet(old_world: World, zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    directory = tmp_path / "new"
    directory.mkdir()
    with closing(Fleet(zygote, directory, environment_for(old_world.url), wait_until)) as fleet:
        yield fleet


def feed(world: World) -> None:
    """Add short jobs of every kind."""
    world.add_many(60, payload={"seconds": 0.01})
    for number in range(3):
        world.add_many(10, payload={"seconds": 0.01}, queue_name=f"q{number}")
    world.add_many(10, "exactly_once", {"seconds": 0.01})
    world.add("failing", {"delay": 0.1})


def test_upgrade_and_rollback__lose_nothing_and_run_nothing_twice_at_once(
    old_world: World, old_fleet: Fleet, new_fleet: Fleet, earlier_checkout: Path
) -> None:
    world = old_world
    old = [old_fleet.start("-j", "4", is_forked=False) for _ in range(2)]
    feed(world)
    world.wait_for_progress(10)
    # The schema changes while workers of the earlier version run.
    migrate(world.url)
    world.query(LEASES)
    feed(world)
    world.wait_until_empty()
    # Workers of both versions run; a worker of each dies.
    new = [new_fleet.start("-j", "4") for _ in range(2)]
    feed(world)
    world.wait_for_progress(10)
    world.kill(old[0])
    feed(world)
    world.wait_for_progress(10)
    world.kill(new[0])
    world.wait_until(world.is_drained)
    feed(world)
    assert old[1].stop() == 0
    world.wait_until(world.is_drained)
    world.check()
    # Migrate back: the earlier version finds its own schema.
    assert new[1].stop() == 0
    world.check_nothing_is_held()
    feed(world)
    backwards = [sys.executable, str(CHECKOUT / "testproject" / "manage.py"), "migrate", "-v0"]
    environment = environment_for(world.url)
    subprocess.run(
        [*backwards, "graphile_worker", LAST_MIGRATION_THEN], cwd=CHECKOUT, env=environment, check=True, timeout=100
    )
    again = old_fleet.start("-j", "4", is_forked=False)
    world.wait_until(world.is_drained)
    assert again.stop() == 0
    done = {run.job_id for run in world.executions() if run.outcome == "end"}
    assert set(world.job_ids) - done == set()
    effects = world.value("select count(*) from fault_history.effect")
    assert effects == world.value("select count(distinct job_id) from fault_history.effect") == 60
