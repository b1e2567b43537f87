"""The rehearsal of an upgrade: the last release and this one work on one schema, under load and with kills."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from django_graphile_worker import __version__
from tests.faults import releases
from tests.faults.conftest import environment_for
from tests.faults.processes import CHECKOUT, WAIT_TIMEOUT, Fleet, Wait, WorkerProcess, Zygote, restore_signals
from tests.faults.world import World
from tests.support.database_server import DatabaseServer

PRODUCER = CHECKOUT / "tests" / "faults" / "producer.py"
# A migration that the release after this one could have.
NEXT_RELEASE = {"FAULT_MIGRATIONS": "tests.support.next_release"}


@pytest.fixture(scope="session")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    directory = tmp_path_factory.mktemp("last_release")
    try:
        return Release(releases.build(releases.last_release(), directory), directory)
    except releases.NoReleaseError as error:
        pytest.skip(f"no release to upgrade from: {error}")


@dataclass(frozen=True)
class Release:
    """The code of a release, and its version."""

    version: str
    directory: Path


@dataclass
class Site:
    """What runs of a release: its workers, and a process that adds jobs."""

    release: Release
    world: World
    fleet: Fleet
    environment: dict[str, str]
    workers: list[WorkerProcess] = field(default_factory=list)
    producer: subprocess.Popen[bytes] | None = None

    def manage(self, *arguments: str) -> str:
        """Run a command of manage.py with the code of the release, and return what it printed."""
        command = [sys.executable, str(self.release.directory / "testproject" / "manage.py"), *arguments]
        done = subprocess.run(
            command, cwd=self.release.directory, env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_worker(self) -> None:
        is_this = self.release.directory == CHECKOUT
        self.workers.append(self.fleet.start("-j", "4", "--poll-interval", "0.3", is_forked=is_this))

    def kill_worker(self) -> None:
        self.world.kill(self.workers.pop(0))

    def stop_worker(self) -> None:
        assert self.workers.pop(0).stop() == 0

    def start_producer(self) -> None:
        command = [sys.executable, str(PRODUCER), str(self.release.directory)]
        self.producer = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.PIPE, preexec_fn=restore_signals
        )

    def kill_producer(self) -> None:
        if self.producer is not None:
            self.producer.kill()
            self.producer.communicate()
            self.producer = None

    def stop_producer(self) -> None:
        """Let the producer end, which it does with an error if a job could not be added."""
        if self.producer is not None:
            self.producer.communicate(timeout=WAIT_TIMEOUT)
            assert self.producer.returncode == 0
            self.producer = None

    def close(self) -> None:
        self.kill_producer()
        self.fleet.close()


@dataclass
class Rehearsal:
    """Two releases that share a schema."""

    world: World
    last: Site
    this: Site

    def work(self, ends: int = 40) -> None:
        """Let jobs run in this state of the deploy."""
        self.world.wait_for("end", self.world.count_events("end") + ends)

    def finish(self) -> None:
        """Let all jobs end, stop, and check what became of each job that was committed."""
        for site in (self.last, self.this):
            site.stop_producer()
        self.world.wait_until(self.world.is_drained)
        # The killed workers are removed from the register by those that run.
        running = len(self.last.workers) + len(self.this.workers)
        self.world.wait_until(lambda: len(self.world.workers()) == running)
        for site in (self.last, self.this):
            while site.workers:
                site.stop_worker()
        added = self.world.events("added")
        self.world.job_ids = [event.job_id for event in added]
        self.world.check()
        self.world.check_nothing_is_held()
        assert self.world.count_events("violation") == 0
        once = sorted(event.job_id for event in added if event.note == "exactly_once")
        effects = self.world.query("select job_id from fault_history.effect where job_id = any (%s)", once)
        assert sorted(row.job_id for row in effects) == once
        assert len({event.pid for event in added}) > 1


@pytest.fixture
def rehearsal(
    last_release: Release,
    database_server: DatabaseServer,
    zygote: Zygote,
    worker_schema: str,
    tmp_path: Path,
    wait_until: Wait,
) -> Iterator[Rehearsal]:
    """A database that the last release has migrated, with its worker schema empty."""
    name = database_server.create_database()
    url = database_server.url(name)
    environment = environment_for(url) | {"FAULT_LIMITED": "1"}
    world = World(url, worker_schema, wait_until)

    def site(release: Release) -> Site:
        directory = tmp_path / release.version
        directory.mkdir()
        fleet = Fleet(zygote, directory, environment, wait_until, checkout=release.directory)
        return Site(release, world, fleet, environment)

    with closing(world), closing(site(last_release)) as last, closing(site(Release(__version__, CHECKOUT))) as this:
        last.manage("migrate", "graphile_worker")
        world.prepare()
        yield Rehearsal(world, last, this)
    database_server.drop_database(name)


@pytest.mark.timeout(180)
def test_rolling_deploy_and_roll_back__lose_nothing(rehearsal: Rehearsal) -> None:
    world, last, this = rehearsal.world, rehearsal.last, rehearsal.this
    last.start_worker()
    last.start_worker()
    last.start_producer()
    # A worker of the new code that starts before the migration works, or refuses to start.
    early = this.fleet.start("-j", "4", "--poll-interval", "0.3", is_ready=False)
    world.wait_until(lambda: early.has_written(r"django-worker-\w+ started") or not early.is_alive)
    rehearsal.work()
    if early.is_alive:
        this.workers.append(early)
    else:
        assert early.has_written('is that of an earlier release .* Run "manage.py migrate')
    # While they work: to this release, and to what the release after it could add.
    this.environment = this.environment | NEXT_RELEASE
    this.manage("migrate", "graphile_worker")
    assert world.value("select to_regclass('{schema}._private_next')") is not None
    if not this.workers:
        this.start_worker()
    this.start_producer()
    rehearsal.work()
    status = json.loads(this.manage("graphile_worker", "status", "--json"))
    assert status["workers"]["versions"] == {last.release.version: 2, this.release.version: 1}
    # A worker of each dies, and the other release recovers its jobs.
    last.kill_worker()
    this.kill_worker()
    rehearsal.work()
    this.start_worker()
    rehearsal.work()
    last.kill_producer()
    last.stop_worker()
    rehearsal.work()
    # Back to the code of the last release, on the schema as it is.
    last.start_worker()
    last.start_producer()
    rehearsal.work()
    this.kill_worker()
    this.stop_producer()
    rehearsal.work()
    rehearsal.finish()


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_long_mixed_fleet__loses_nothing(rehearsal: Rehearsal, seed: int) -> None:
    """For minutes, workers and producers of both releases are killed and started, and the schema is migrated."""
    chance = random.Random(seed)
    world, last, this = rehearsal.world, rehearsal.last, rehearsal.this
    this.environment = this.environment | NEXT_RELEASE
    for site in (last, this):
        site.start_worker()
        site.start_producer()
    for number in range(int(os.environ.get("UPGRADE_ROUNDS", "40"))):
        site = chance.choice([last, this])
        if number % 10 == 5:
            # Backwards, too: no release may depend on what the next one adds.
            this.manage("migrate", "graphile_worker", *(["0005"] if number % 20 == 15 else []))
        verb, part = chance.choice(["kill", "stop"]), chance.choice(["worker", "producer"])
        getattr(site, f"{verb}_{part}")()
        getattr(site, f"start_{part}")()
        rehearsal.work(chance.choice([10, 100]))
        assert world.locked() < 100
    rehearsal.finish()
