"""A worker with several databases, with selected tasks or forbidden flags, and inside another program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.faults.conftest import Migrate, environment_for
from tests.faults.processes import CHECKOUT, Fleet, Wait
from tests.faults.proxy import Proxy
from tests.faults.world import World
from tests.support.database_server import DatabaseServer


@pytest.fixture(scope="module")
def other_database(database_server: DatabaseServer, migrate: Migrate) -> Iterator[str]:
    name = database_server.create_database()
    migrate(database_server.url(name))
    yield database_server.url(name)
    database_server.drop_database(name)


@pytest.fixture
def other_world(other_database: str, worker_schema: str, wait_until: Wait) -> Iterator[World]:
    with World.open(other_database, worker_schema, wait_until) as world:
        yield world


def test_several_databases__are_served_by_one_worker(world: World, other_world: World, fleet: Fleet) -> None:
    both = {"FAULT_OTHER_DATABASE_URL": other_world.url}
    worker = fleet.start("--database", "default", "--database", "other", environment=both)
    world.wait_until(lambda: world.workers() and other_world.workers())
    world.add_many(5)
    other_world.add_many(5)
    world.wait_until_empty()
    other_world.wait_until_empty()
    # Both databases share the history; job ids are unique only within a database.
    world.wait_for("end", 10)
    assert worker.stop() == 0
    world.check_nothing_is_held()
    other_world.check_nothing_is_held()


def test_several_databases__are_served_while_one_of_them_is_unreachable(
    world: World, other_world: World, fleet: Fleet, wait_until: Wait
) -> None:
    both = {"FAULT_OTHER_DATABASE_URL": other_world.url}
    worker = fleet.start("--database", "default", "--database", "other", environment=both)
    wait_until(lambda: world.workers() and other_world.workers())
    other_world.query("alter table {schema}._private_workers rename to gone")
    try:
        worker.wait_for("failed, next try in")
        world.add("quick")
        world.wait_until_empty()
    finally:
        other_world.query("alter table {schema}.gone rename to _private_workers")
    assert worker.stop() == 0


@pytest.fixture
def other_proxy(other_world: World, start_proxy: Callable[[str], Proxy]) -> Proxy:
    """A proxy to the other database."""
    return start_proxy(other_world.url)


BOTH = ("--database", "other", "--database", "default", "--no-prepared-statements")


def through(proxy: Proxy) -> dict[str, str]:
    return {"FAULT_OTHER_DATABASE_URL": proxy.url}


def test_several_databases__are_served_when_one_becomes_reachable_after_the_start(
    world: World, other_world: World, fleet: Fleet, other_proxy: Proxy
) -> None:
    other_proxy.refuse()
    worker = fleet.start(*BOTH, environment=through(other_proxy))
    world.add("quick")
    world.wait_until_empty()
    worker.wait_for(r"\[other\] start failed, next try in [0-9.]+ m?s: OperationalError")
    other_world.add("quick")
    other_proxy.accept()
    other_world.wait_until_empty()
    assert worker.has_written(r"\[other\] worker django-worker-\w+ started on other")
    assert worker.stop() == 0
    world.check_nothing_is_held()
    other_world.check_nothing_is_held()


def test_several_databases__are_served_and_stopped_although_one_does_not_answer(
    world: World, other_world: World, fleet: Fleet, other_proxy: Proxy
) -> None:
    """Other databases are served at once, and the worker stops at once."""
    other_proxy.blackhole("*")
    worker = fleet.start(*BOTH, environment=through(other_proxy), is_ready=False)
    world.add("quick")
    world.wait_until_empty()
    assert worker.stop() == 0
    world.check_nothing_is_held()


def test_several_databases_without_an_answer__are_an_error_that_names_them(
    world: World, fleet: Fleet, other_proxy: Proxy
) -> None:
    other_proxy.refuse()
    away = through(other_proxy) | {"FAULT_DATABASE_OPTIONS": '{"NAME": "nowhere"}'}
    worker = fleet.start(*BOTH, environment=away, is_ready=False)
    assert worker.wait() == 1
    assert worker.count_in_output("CommandError: Cannot reach the database 'other': ") == 1
    assert worker.has_written("""Cannot reach the database 'default': .* database "nowhere" does not exist""")
    assert "Traceback" not in worker.output()


def test_several_databases_with_one_without_the_schema__are_an_error_at_once(
    world: World, fleet: Fleet, fresh_database: Callable[[], str]
) -> None:
    empty = {"FAULT_OTHER_DATABASE_URL": fresh_database()}
    worker = fleet.start(*BOTH, environment=empty, is_ready=False)
    assert worker.wait() == 1
    assert worker.has_written("CommandError: .*other")
    world.check_nothing_is_held()


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.chaos)])
def test_once__drains_the_reachable_databases_and_names_the_unreachable_one(
    world: World, other_world: World, fleet: Fleet, other_proxy: Proxy, processes: int
) -> None:
    world.add("quick")
    other_proxy.refuse()
    worker = fleet.start(
        "--once",
        *BOTH,
        "--processes",
        str(processes),
        environment=through(other_proxy),
    )
    assert worker.wait() == 1
    assert world.count() == 0
    assert worker.count_in_output("CommandError: Cannot reach the database 'other': ") == 1
    assert "Traceback" not in worker.output()


def test_forbidden_flags_as_a_callable__are_evaluated_at_every_claim_even_if_its_connection_breaks(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    settings = {"FORBIDDEN_FLAGS": "tests.worker_app.tasks.forbidden_in_history"}
    world.record("forbid", "red")
    worker = fleet.start("--poll-interval", "0.2", settings=settings)
    red = world.add("quick", flags=["red"])
    world.add("quick", flags=["blue"])
    wait_until(lambda: world.count() == 1)
    assert world.job(red) is not None
    # Django's connection on the claiming thread dies, and only the worker can replace it. A thread that has
    # run a job checks its connection by itself, so it is terminated again.
    asking = "from pg_stat_activity where datname = current_database() and query ~ 'kind = .forbid'"
    asking += " and pid <> pg_backend_pid()"
    for _ in range(3):
        wait_until(lambda: world.value(f"select count(*) {asking}"))
        world.query(f"select pg_terminate_backend(pid) {asking}")
    world.query("delete from fault_history.event where kind = 'forbid'")
    world.wait_until_empty()
    assert worker.stop() == 0


def test_forbidden_flags_that_raise_system_exit__do_not_end_the_worker(world: World, fleet: Fleet) -> None:
    settings = {"FORBIDDEN_FLAGS": "tests.worker_app.tasks.forbidden_raising"}
    job_id = world.add("quick")
    worker = fleet.start(settings=settings)
    worker.wait_for("fetcher failed, next try in .*SystemExit: a callable that wants to end the worker")
    worker.wait_for("(?s)(fetcher failed.*){2}")
    assert world.job(job_id).attempts == 0, "without the forbidden flags nothing is claimed"
    assert worker.stop() == 0


PROGRAM = """
import threading
import django
django.setup()
from django_graphile_worker import StopRequest, run_worker
from tests.worker_app import history

stop = StopRequest()
codes = []
thread = threading.Thread(target=lambda: codes.append(run_worker(stop=stop, concurrency=2)))
thread.start()
while not history.is_recorded("end"):
    threading.Event().wait(0.01)
stop("enough")
thread.join()
left = [t.name for t in threading.enumerate() if t.name.startswith("graphile-worker") and "watchdog" not in t.name]
print("codes", codes, "threads", left, flush=True)
"""


def test_worker_on_a_thread_of_a_program__runs_jobs_until_it_is_stopped(world: World) -> None:
    world.add("quick")
    environment = environment_for(world.url) | {"PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", PROGRAM]
    program = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=100)
    assert "codes [0] threads []" in program.stdout, program.stderr
    assert world.count() == 0
    world.check_nothing_is_held()
