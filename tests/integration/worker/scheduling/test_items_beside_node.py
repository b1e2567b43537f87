"""Ticks that Node fires at the same moment: its statement takes the rows in the order of its own crontab."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.sql.schedules import from_code
from tests.conftest import RawConnection
from tests.support.cron_world import MINUTE, SECOND, CronWorld
from tests.support.crontab_ticks import fire_ticks
from tests.support.interleaving import Stage

TICK = datetime(2026, 11, 15, 4, 30, tzinfo=UTC)

# What Node sends for a minute: one statement, the items in the order of the crontab.
NODE = """with specs as (
    select row_number() over () as place, spec ->> 'identifier' as identifier, spec -> 'payload' as payload
    from json_array_elements(%(specs)s::json) as spec
), locks as (
    insert into {schema}._private_known_crontabs as known (identifier, known_since, last_execution)
    select specs.identifier, %(tick)s::timestamptz, %(tick)s::timestamptz from specs
    on conflict (identifier) do update set last_execution = excluded.last_execution
    where known.last_execution is null or known.last_execution < excluded.last_execution
    returning known.identifier
)
select {schema}.add_job(specs.identifier, specs.payload, run_at => %(tick)s::timestamptz)
from specs inner join locks using (identifier) order by specs.place"""


def node_fires(connection: RawConnection, schema: str, names: list[str], tick: datetime) -> None:
    stamp = tick.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    specs = [{"identifier": name, "payload": {"_cron": {"ts": stamp, "backfilled": False}}} for name in names]
    connection.execute(NODE.replace("{schema}", f'"{schema}"').encode(), {"specs": json.dumps(specs), "tick": tick})


@pytest.fixture
def stage(raw_connection: Callable[..., RawConnection]) -> Iterator[Stage]:
    # PostgreSQL looks for deadlocks at once, and Node is not spared by being quick.
    with Stage(lambda: raw_connection(options="-c deadlock_timeout=10ms")) as stage:
        yield stage


@pytest.fixture
def slower_stage(raw_connection: Callable[..., RawConnection]) -> Iterator[Stage]:
    """PostgreSQL looks for deadlocks long after this package has given up its wait, on a busy machine too."""
    with Stage(lambda: raw_connection(options="-c deadlock_timeout=1s")) as stage:
        yield stage


@pytest.fixture
def world(raw_connection: Callable[..., RawConnection], worker_schema: str) -> CronWorld:
    return CronWorld(raw_connection, worker_schema, TICK - 30 * SECOND)


def ours(names: list[str]) -> list[CronItem]:
    return [CronItem(name, "* * * * *") for name in names]


def test_a_tick_never_waits_for_one_row_while_it_holds_another(
    stage: Stage, world: CronWorld, worker_schema: str
) -> None:
    from_code.register(world.connection.cursor(), ["a", "b"], schema=worker_schema, since=TICK - MINUTE)
    node, django = stage.session(), stage.session()

    def fire(connection: Any) -> dict[str, list[int]]:
        return fire_ticks(connection.cursor(), ours(["a", "b"]), TICK, schema=worker_schema, now=TICK)

    # The two halves of Node's statement, between which it may be when this package's statement begins.
    node.start(lambda connection: connection.execute("begin"))
    node.start(lambda connection: node_fires(connection, worker_schema, ["b"], TICK))
    first = django.start(fire)
    second_half = node.start(lambda connection: node_fires(connection, worker_schema, ["a"], TICK))
    stage.settle()
    node.start(lambda connection: connection.execute("commit"))
    stage.settle()

    assert second_half.result() is None
    assert list(first.result()) == ["a"]
    assert django.start(fire).result() == {}
    assert world.fired() == {("a", TICK): 1, ("b", TICK): 1}


class Rivals:
    """A Node and a Django that fire the same ticks at the same moments."""

    def __init__(self, raw_connection: Callable[..., RawConnection], schema: str, names: list[str]) -> None:
        self.connect = raw_connection
        self.schema = schema
        self.names = names
        self.errors: list[Exception] = []
        self.together = threading.Barrier(2)
        self.moment = TICK

    def node(self, ticks: list[datetime]) -> None:
        with self.connect(options="-c deadlock_timeout=1ms") as connection:
            for tick in ticks:
                self.together.wait(60)
                self.attempt(partial(node_fires, connection, self.schema, self.names[::-1], tick))

    def django(self, ticks: list[datetime]) -> None:
        world = CronWorld(self.connect, self.schema, TICK)
        cron, _ = world.worker(ours(self.names), now=lambda: self.moment)
        for tick in ticks:
            self.moment = tick
            self.together.wait(60)
            self.attempt(lambda: world.settle(cron))

    def attempt(self, fire: Callable[[], object]) -> None:
        try:
            fire()
        except psycopg.Error as error:
            self.errors.append(error)


def test_forty_items_in_opposite_orders_fire_once_without_a_deadlock(
    raw_connection: Callable[..., RawConnection], world: CronWorld, worker_schema: str
) -> None:
    names = [f"item{number:02}" for number in range(40)]
    from_code.register(world.connection.cursor(), names, schema=worker_schema, since=TICK - MINUTE)
    ticks = [TICK + count * MINUTE for count in range(20)]
    rivals = Rivals(raw_connection, worker_schema, names)

    threads = [threading.Thread(target=fire, args=[ticks]) for fire in (rivals.node, rivals.django)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert rivals.errors == []
    assert world.fired() == Counter({(name, tick): 1 for name in names for tick in ticks})


@pytest.mark.parametrize("does_commit", [True, False])
def test_a_tick_that_another_session_holds_is_tried_until_it_is_known_to_be_fired(
    raw_connection: Callable[..., RawConnection], world: CronWorld, worker_schema: str, does_commit: bool
) -> None:
    cron, _ = world.worker([*ours(["held", "free"]), CronItem("filled", "* * * * *", backfill_period="1h")])
    cron.step()
    holder = raw_connection(autocommit=False)
    node_fires(holder, worker_schema, ["held", "filled"], TICK)
    for count in range(3):
        # The other items are on time, and fire other ticks than the held item.
        world.now = TICK + count * MINUTE
        assert cron.step() <= 0.5
        assert world.ticks("free")[-1] == f"{world.now:%H:%M}"
    assert world.ticks("held") == world.ticks("filled") == []

    (holder.commit if does_commit else holder.rollback)()
    world.settle(cron)

    assert world.ticks("held") == world.ticks("filled") == ["04:30", "04:31", "04:32"]
    assert set(world.fired().values()) == {1}
    assert cron.step() > 0.6


def test_a_row_that_is_held_for_hours_is_given_up(
    raw_connection: Callable[..., RawConnection], world: CronWorld, worker_schema: str
) -> None:
    cron, _ = world.worker(ours(["held"]))
    cron.step()
    holder = raw_connection(autocommit=False)
    node_fires(holder, worker_schema, ["held"], TICK - MINUTE)
    for count in range(0, 90, 3):
        world.now = TICK + count * MINUTE
        cron.step()
    holder.rollback()
    world.settle(cron)
    assert len(world.ticks("held")) == 61


def test_two_that_make_the_same_new_items_known_do_not_wait_in_a_circle(
    slower_stage: Stage, world: CronWorld, worker_schema: str
) -> None:
    node, django = slower_stage.session(), slower_stage.session()
    node.start(lambda connection: connection.execute("begin"))
    node.start(lambda connection: node_fires(connection, worker_schema, ["b"], TICK))
    registering = django.start(
        lambda connection: from_code.register(connection.cursor(), ["a", "b"], schema=worker_schema)
    )
    second_half = node.start(lambda connection: node_fires(connection, worker_schema, ["a"], TICK))
    slower_stage.settle()

    with pytest.raises(psycopg.errors.LockNotAvailable):
        registering.result(60)
    assert second_half.result(60) is None
    node.start(lambda connection: connection.execute("commit"))
    assert set(from_code.known_crontabs(world.connection.cursor(), schema=worker_schema)) == {"a", "b"}


def test_a_deleted_row_that_node_writes_again__delays_no_other_item(
    raw_connection: Callable[..., RawConnection], world: CronWorld, worker_schema: str
) -> None:
    cron, _ = world.worker(ours(["a", "gone", "z"]))
    cron.step()
    world.connection.execute(
        f"""delete from "{worker_schema}"._private_known_crontabs where identifier = 'gone'""".encode()
    )
    node = raw_connection(autocommit=False)
    node_fires(node, worker_schema, ["gone"], TICK)
    world.now = TICK
    assert cron.step() <= 0.5
    assert world.fired() == {("a", TICK): 1, ("z", TICK): 1}
    node.commit()
    world.settle(cron)
    assert world.fired() == {(name, TICK): 1 for name in ("a", "gone", "z")}
