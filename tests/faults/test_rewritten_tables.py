"""VACUUM FULL, CLUSTER and pg_repack give rows other places while workers hold them: each job still runs once."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, product
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest

from tests.faults.processes import Fleet, Wait
from tests.faults.world import World
from tests.support import prerequisites

TABLE = "{schema}._private_jobs"
RECORDED = {"KEEP_RESULTS": 3600, "HISTORY": 86_400}
COMPLETIONS: dict[str, tuple[Mapping[str, Any], str | None]] = {
    "plain": ({}, None),
    "queued": ({}, "q"),
    "in the history": ({"HISTORY": 86_400}, None),
    "with results": (RECORDED, None),
}


@pytest.fixture
def world(versioned_database: str, worker_schema: str, wait_until: Wait) -> Iterator[World]:
    """A database of each version of PostgreSQL."""
    with World.open(versioned_database, worker_schema, wait_until) as world:
        yield world


def rewrite(world: World, statement: str) -> None:
    """Run a statement in a session of its own."""
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute(statement.replace("{schema}", f'"{world.schema}"').encode())


def add_future_jobs(world: World, count: int) -> None:
    world.query(
        "select count(*) from {schema}.add_jobs((select array_agg(row('quiet', '{}'::json, null,"
        " now() + interval '1 hour', 25, null, null, null)::{schema}.job_spec) from generate_series(1, %s)))",
        count,
    )


def check_each_is_recorded_once(world: World) -> None:
    for table in ("_private_history", "_private_results"):
        rows = world.query(f"select job_id from {{schema}}.{table} where job_id = any (%s)", world.job_ids)
        assert Counter(row.job_id for row in rows) == Counter(world.job_ids), table


VACUUM, CLUSTER = f"vacuum full {TABLE}", f"cluster {TABLE} using jobs_pkey1"
USUAL = dict(zip(COMPLETIONS, cycle([VACUUM, CLUSTER])))
REWRITES = [
    pytest.param(kind, statement, marks=[] if USUAL[kind] == statement else pytest.mark.chaos)
    for kind, statement in product(COMPLETIONS, (VACUUM, CLUSTER))
]


@pytest.mark.parametrize(("kind", "statement"), REWRITES)
def test_jobs_in_hand__run_once_and_are_completed(
    world: World, fleet: Fleet, tmp_path: Path, kind: str, statement: str
) -> None:
    """The worker holds 301 jobs of one claim while the table is rewritten without the versions of before the claim."""
    settings, queue_name = COMPLETIONS[kind]
    ids = tmp_path / "ids"

    def add(count: int, seconds: float) -> None:
        world.add_many(count, "listed", {"path": str(ids), "seconds": seconds}, queue_name=queue_name)

    # Short jobs, after which the worker claims many at once.
    world.add_many(300, "quiet")
    worker = fleet.start("-j", "1", "-v", "1", settings=settings)
    world.wait_until_empty()
    # Without room on the pages, the claim writes all its versions one after the other, and the rewrite moves all.
    world.query(f"alter table {TABLE} set (fillfactor = 100)")
    rewrite(world, f"vacuum full {TABLE}")
    with world.in_one_transaction():
        add_future_jobs(world, 700)
        add(1, 0.4)
        add(219, 0.001)
        add(81, 0.0)
    world.wait_until(lambda: world.locked() > 200 or world.count() == 700)
    rewrite(world, statement)
    world.wait_until(lambda: world.locked() == 0 and world.count() <= 700)
    assert worker.stop() == 0
    assert Counter(map(int, ids.read_text().split())) == Counter(world.job_ids)
    assert world.count() == 700
    world.check_nothing_is_held()
    if "KEEP_RESULTS" in settings:
        check_each_is_recorded_once(world)


def test_fleet__works_through_its_jobs_while_the_table_is_rewritten(world: World, fleet: Fleet) -> None:
    work_through_rewrites(
        world,
        fleet,
        [
            lambda: rewrite(world, VACUUM),
            lambda: rewrite(world, CLUSTER),
            lambda: rewrite(world, "vacuum full {schema}._private_job_queues"),
        ],
    )


@pytest.mark.chaos
def test_fleet__works_through_its_jobs_while_pg_repack_swaps_the_table(
    world: World, fleet: Fleet, server_version: int
) -> None:
    repack = prerequisites.find_pg_repack(server_version)
    if repack is None:
        pytest.skip(f"pg_repack is not installed (Debian: apt-get install postgresql-{server_version}-repack)")
    world.query("create extension pg_repack")
    server = psycopg.conninfo.conninfo_to_dict(world.url)
    environment = os.environ | {"PGHOST": str(server["host"]), "PGUSER": str(server["user"])}
    command = [repack, "--dbname", str(server["dbname"]), "--table", f"{world.schema}._private_jobs", "--no-analyze"]

    runs: list[subprocess.CompletedProcess[str]] = []
    # It gives up if it does not get its locks in time, and undoes what it began.
    work_through_rewrites(
        world,
        fleet,
        [lambda: runs.append(subprocess.run(command, env=environment, check=False, capture_output=True, text=True))],
    )
    assert any(run.returncode == 0 for run in runs), runs


def work_through_rewrites(world: World, fleet: Fleet, rewrites: list[Callable[[], object]]) -> None:
    """Let two workers run jobs of all kinds, and rewrite again and again until the jobs are done."""
    workers = [fleet.start("-j", "4", settings=RECORDED) for _ in range(2)]
    is_done = Event()

    def rewrite_repeatedly() -> int:
        for number, each in enumerate(cycle(rewrites)):
            each()
            # The workers need the table, too.
            if is_done.wait(0.1):
                return number
        raise AssertionError

    with ThreadPoolExecutor(1) as threads:
        rewriting = threads.submit(rewrite_repeatedly)
        try:
            with world.in_one_transaction():
                for number in range(5):
                    world.add_many(40, payload={"seconds": 0.001})
                    world.add_many(20, queue_name=f"q{number % 2}")
                    world.add_many(10, "exactly_once")
                add_future_jobs(world, 700)
            world.wait_until(lambda: rewriting.done() or world.count() == 700)
        finally:
            is_done.set()
        assert rewriting.result(60) >= 2
    assert [worker.stop() for worker in workers] == [0, 0]
    world.check()
    assert Counter(run.job_id for run in world.executions()) == Counter(world.job_ids)
    assert world.count() == 700
    check_each_is_recorded_once(world)
    world.check_nothing_is_held()
    effects = world.query("select job_id, count(*) as number from fault_history.effect group by 1")
    assert {row.number for row in effects} == {1}
    assert len(effects) == 50
