"""The claim of limited jobs: no job is claimed that may not run now."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql import limits
from django_graphile_worker.sql.releases import return_jobs
from tests.support.buffers import MeasuringCursor
from tests.support.index_descents import IndexDescents
from tests.support.limited_jobs import LimitedJobs, field_of

Connection = psycopg.Connection[Any]
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def make(raw_connection: Callable[..., Connection], worker_schema: str) -> Callable[..., LimitedJobs]:
    """Return a factory of limited jobs, each with a connection of its own."""
    return lambda **limits: LimitedJobs(raw_connection(), worker_schema, **limits)


@pytest.fixture
def account(make: Callable[..., LimitedJobs]) -> LimitedJobs:
    return make(account={"concurrency": 2})


@pytest.fixture
def rated(make: Callable[..., LimitedJobs]) -> LimitedJobs:
    return make(account={"rate": "10/m"})


def at(seconds: float) -> dict[str, Any]:
    """Return the time of a claim, after noon."""
    moment = NOON + timedelta(seconds=seconds)
    return {"clock": moment}


def test_concurrency__is_counted_by_the_claim(account: LimitedJobs) -> None:
    account.add(5, account=1)
    account.add(1, account=2)
    account.sort_all()

    first = account.claim_all()
    assert Counter(field_of(first, "account")) == {1: 2, 2: 1}

    assert account.end(first[:1]) == 1
    second = account.claim_all()
    assert field_of(second, "account") == [1]
    assert all(claim.attempts == 1 for claim in (*first, *second))


def test_a_place__counts_only_while_its_claim_stands(account: LimitedJobs) -> None:
    """Whatever ends a claim frees the place: here nothing tells of it, and the next look at the key counts again."""
    account.add(3, account=1)
    account.sort_all()
    ended = account.claim_all()
    assert len(ended) == 2
    account.complete(ended[:1])
    account.add(1, account=1, options="job_key => 'new'")
    account.sort_all()

    assert account.sweep() == 1
    assert len(account.claim_all()) == 1


def test_a_place__is_freed_once(account: LimitedJobs) -> None:
    account.add(5, account=1)
    account.sort_all()
    running = account.claim_all()
    account.end(running[:1])
    account.free(running[:1])
    account.free(running[:1])

    assert len(account.claim_all()) == 1


def test_a_returned_job__is_sorted_again_without_an_attempt(account: LimitedJobs) -> None:
    account.add(1, account=1)
    account.sort_all()
    (claim,) = account.claim_all()
    with account.connection.cursor() as cursor:
        return_jobs(cursor, [claim], schema=account.schema)
    account.free([claim])

    account.sort_all()
    (again,) = account.claim_all()
    assert (again.id, again.attempts, again.run_at_epoch) == (claim.id, 1, claim.run_at_epoch)


def test_claims_of_one_key__do_not_count_at_the_same_time(
    account: LimitedJobs, make: Callable[..., LimitedJobs]
) -> None:
    """Sessions that claim at once see each other's places: the claim holds the key."""
    account.add(40, account=1)
    account.add(40, account=2)
    account.sort_all()
    claimed: list[Any] = []
    begin = threading.Barrier(4)

    def claim() -> None:
        mine = make(account={"concurrency": 2})
        begin.wait(60)
        for _ in range(5):
            claimed.extend(mine.claim(3).claims)

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(field_of(claimed, "account")) == {1: 2, 2: 2}


def test_several_limits__all_count(make: Callable[..., LimitedJobs]) -> None:
    jobs = make(account={"concurrency": 2}, country={"concurrency": 3})
    for account in range(4):
        jobs.add(3, account=account, country="se")
    jobs.sort_all()

    running = jobs.claim_all()
    assert len(running) == 3
    assert max(Counter(field_of(running, "account")).values()) <= 2
    for _ in range(9):
        assert jobs.end(running[:1]) >= 1
        running = [*running[1:], *jobs.claim_all()]
        assert len(running) == 3
        assert max(Counter(field_of(running, "account")).values()) <= 2


def test_a_rate__holds_in_every_window(rated: LimitedJobs) -> None:
    rated.add(40, account=1)
    rated.sort_all()
    starts: list[float] = []
    for second in range(0, 200, 2):
        starts += [second] * len(rated.claim_all(4, **at(second)))

    assert len(starts) == 40
    assert all(later - earlier > 60 for earlier, later in zip(starts, starts[10:], strict=False))


def test_a_burst__is_a_rate_of_its_own(make: Callable[..., LimitedJobs]) -> None:
    jobs = make(account={"rate": "12/m", "burst": 3})
    jobs.add(30, account=1)
    jobs.sort_all()
    starts: list[float] = []
    for second in range(180):
        starts += [second] * len(jobs.claim_all(4, **at(second)))

    assert len(starts) == 30
    assert all(later - earlier > 15 for earlier, later in zip(starts, starts[3:], strict=False))
    assert all(later - earlier > 60 for earlier, later in zip(starts, starts[12:], strict=False))


def test_a_rate__tells_when_it_opens(rated: LimitedJobs) -> None:
    rated.add(11, account=1)
    rated.sort_all()
    assert len(rated.claim(10, **at(0)).claims) == 10

    later = rated.claim(10, **at(30))
    assert (later.claims, later.has_more) == ([], False)
    assert later.seconds_until_next == pytest.approx(30.5)


def test_a_rate__survives_a_clock_that_is_set_back(rated: LimitedJobs) -> None:
    rated.add(30, account=1)
    rated.sort_all()
    assert len(rated.claim_all(10, **at(0))) == 10
    rated.execute("update {schema}._private_limit_keys set opens_at = %s", [NOON - timedelta(hours=2)])

    assert rated.claim_all(10, **at(-3600)) == []
    # The jobs count as if they were claimed when the clock was found to be wrong.
    assert rated.claim_all(10, **at(-3600 + 60)) == []
    assert len(rated.claim_all(10, **at(-3600 + 61))) == 10


def test_a_closed_key__starts_no_job_until_it_opens(account: LimitedJobs) -> None:
    account.add(2, account=1)
    account.add(1, account=2)
    account.sort_all()
    account.close_key("account", "1", 60, clock=NOON)

    assert field_of(account.claim_all(**at(0)), "account") == [2]
    assert account.claim(**at(20)).seconds_until_next == pytest.approx(40)
    assert field_of(account.claim_all(**at(60)), "account") == [1, 1]


def test_stored_numbers__replace_those_of_the_worker(account: LimitedJobs) -> None:
    account.add(10, account=1)
    account.sort_all()
    store = """insert into {schema}._private_limit_overrides (limit_name, concurrency, changed_by)
        values ('account', %s, 'test') on conflict (limit_name) do update set concurrency = excluded.concurrency"""
    account.execute(store, [5])
    running = account.claim_all()
    assert len(running) == 5

    account.execute(store, [8])
    assert account.sweep() == 1
    running += account.claim_all()
    assert len(running) == 8

    account.execute(store, [1])
    account.end(running[:6])
    assert account.claim_all() == []
    account.end(running[6:])
    assert len(account.claim_all()) == 1


def test_priorities__come_before_turns(make: Callable[..., LimitedJobs]) -> None:
    jobs = make(is_fair=True, tenant={})
    jobs.add(2, tenant="a")
    jobs.add(2, tenant="b")
    jobs.add(2, tenant="a", options="priority => -1")
    jobs.sort_all()
    assert [field_of(jobs.claim(1).claims, "tenant")[0] for _ in range(6)] == ["a", "a", "b", "a", "b", "a"]


def test_fair_keys__take_turns(make: Callable[..., LimitedJobs]) -> None:
    jobs = make(is_fair=True, tenant={})
    jobs.add(50, tenant="a")
    jobs.add(3, tenant="b")
    jobs.sort_all()
    assert Counter(field_of(jobs.claim(6).claims, "tenant")) == {"a": 3, "b": 3}
    jobs.add(1, tenant="c")
    jobs.sort_all()
    assert field_of(jobs.claim(1).claims, "tenant") == ["c"]


def test_a_fair_key__has_one_turn_however_many_queues_it_has(make: Callable[..., LimitedJobs]) -> None:
    jobs = make(is_fair=True, tenant={})
    for queue in range(40):
        jobs.add(1, tenant="a", options=f"queue_name => 'q{queue}'")
    jobs.add(20, tenant="b")
    jobs.sort_all()
    one_by_one = [field_of(jobs.claim(1).claims, "tenant")[0] for _ in range(20)]
    assert one_by_one == ["a", "b"] * 10
    assert Counter(field_of(jobs.claim(10).claims, "tenant")) == {"a": 5, "b": 5}
    # The other lanes of a key are taken along: alone, it gets all slots.
    jobs.claim_all()
    assert jobs.count("_private_limited_jobs") == 0


def test_a_queue__runs_one_limited_job_at_a_time(account: LimitedJobs) -> None:
    account.add(3, account=1, options="queue_name => 'q'")
    account.sort_all()
    (claim,) = account.claim_all()
    assert claim.queue_name == "q"
    assert account.value("select locked_by from {schema}._private_job_queues") == claim.token

    account.end([claim])
    assert account.claim_all() == []
    account.execute("update {schema}._private_job_queues set locked_by = null, locked_at = null")
    account.free([], claim.queue_id or 0)
    assert len(account.claim_all()) == 1


def test_a_queue_whose_row_is_locked_for_a_moment__is_looked_at_again_soon(
    account: LimitedJobs, raw_connection: Callable[..., Connection], worker_schema: str
) -> None:
    """A claim of ordinary jobs locks a queue, and leaves it if a limited job comes first. Nobody announces that."""
    account.add(1, account=1, options="queue_name => 'q'")
    account.sort_all()
    other = raw_connection(autocommit=False)
    other.execute(f'select from "{worker_schema}"._private_job_queues for no key update'.encode())
    claimed = account.claim()
    assert not claimed.claims
    assert claimed.seconds_until_next is not None
    assert claimed.seconds_until_next <= 0.1
    other.commit()
    assert len(account.claim(clock=datetime.now(UTC) + timedelta(seconds=1)).claims) == 1


@pytest.mark.parametrize("has_place", [True, False])
def test_a_claim_that_found_the_queue_held__does_not_leave_its_lane_behind(
    account: LimitedJobs, make: Callable[..., LimitedJobs], wait_until: Callable[..., None], has_place: bool
) -> None:
    """The queue is released before the claim has committed that the lane waits for it."""
    account.add(1, account=1, options="queue_name => 'q'")
    account.sort_all()
    (claim,) = account.claim().claims
    account.add(1, account=2, options="queue_name => 'q'")
    account.sort_all()
    other, watcher = make(account={"concurrency": 2}), make(account={})
    freed = threading.Thread(target=lambda: account.free([claim] if has_place else [], claim.queue_id or 0))
    with other.connection.transaction():
        assert other.claim().claims == []
        account.complete([claim])
        account.execute("update {schema}._private_job_queues set locked_by = null, locked_at = null")
        freed.start()
        is_waiting = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and pid = %s)"
        wait_until(lambda: not freed.is_alive() or watcher.value(is_waiting, account.connection.info.backend_pid))
    freed.join(60)
    assert len(account.claim().claims) == 1


def test_lanes_of_held_queues__do_not_come_before_others_again_and_again(account: LimitedJobs) -> None:
    for number in range(30):
        account.add(2, account=number, options=f"queue_name => 'q{number % 20}'")
    account.sort_all()
    account.execute("update {schema}._private_job_queues set locked_by = 'node', locked_at = now()")
    assert account.claim_all(4, **at(0)) == []
    for seconds in (1, 5, 20):
        account.add(1, account=f"fresh {seconds}")
        account.sort_all()
        fresh = account.claim(4, **at(seconds))
        assert field_of(fresh.claims, "account") == [f"fresh {seconds}"]

    account.execute("update {schema}._private_job_queues set locked_by = null, locked_at = null")
    assert account.sweep() == 20
    assert len(account.claim_all(4)) == 20


def test_forbidden_flags__are_not_claimed_and_hide_nothing(account: LimitedJobs) -> None:
    account.add(30, account=1, options="flags => array['slow']")
    account.add(1, account=1)
    account.sort_all()
    assert [claim.flags_text for claim in account.claim_all(forbidden_flags=["slow"])] == [None]
    assert len(account.claim_all()) == 1


@pytest.mark.parametrize(
    "change",
    [
        "select {schema}.add_job('limited', '{\"account\": 2}', job_key => 'k', job_key_mode => 'preserve_run_at')",
        "select {schema}.add_job('limited', '{\"account\": 2}', job_key => 'k')",
    ],
)
def test_a_replaced_job__is_sorted_by_its_new_keys(account: LimitedJobs, change: str) -> None:
    account.add(2, account=2)
    account.add(1, account=1, options="job_key => 'k'")
    account.sort_all()
    account.execute(change)

    running = account.claim_all()
    account.sort_all()
    running += account.claim_all()
    assert field_of(running, "account") == [2, 2]


def test_deleted_and_failed_jobs__leave_their_lane(account: LimitedJobs) -> None:
    account.add(1, account=1, options="job_key => 'gone'")
    account.add(1, account=1, options="job_key => 'failed'")
    account.add(1, account=1)
    account.sort_all()
    account.execute("select {schema}.remove_job('gone')")
    account.execute(
        "select {schema}.permanently_fail_jobs(array(select id from {schema}._private_jobs where key = 'failed'))"
    )
    assert len(account.claim_all()) == 1
    assert account.count("_private_limited_jobs") == 0
    assert account.count("_private_jobs", "run_at = 'infinity'") == 0


def test_a_job_that_another_session_has_locked__is_left_for_a_moment(
    account: LimitedJobs, make: Callable[..., LimitedJobs]
) -> None:
    account.add(1, account=1)
    account.sort_all()
    other = make(account={})
    with other.connection.transaction():
        other.execute("select from {schema}._private_jobs for update")
        busy = account.claim()
        assert (busy.claims, busy.has_more) == ([], False)
        assert busy.seconds_until_next == pytest.approx(0.1, abs=0.1)
    account.execute("update {schema}._private_limit_lanes set ready_at = now()")
    assert len(account.claim_all()) == 1


def test_jobs_that_another_session_has_locked__do_not_hold_up_their_lane(
    account: LimitedJobs, make: Callable[..., LimitedJobs]
) -> None:
    """A transaction that replaces jobs under their keys may stay open for long."""
    account.add(10, account=1)
    account.add(2, account=1, options="queue_name => 'q'")
    account.sort_all()
    other = make(account={})
    with other.connection.transaction():
        other.execute("select from {schema}._private_jobs where job_queue_id is null order by id limit 6 for update")
        other.execute(
            "select from {schema}._private_jobs where job_queue_id is not null order by id limit 1 for update"
        )
        claims = account.claim(1).claims
        assert len(claims) == 1
        # The lane is still ready, for the last place of the key.
        claims += account.claim_all()
        assert len(claims) == 2
        account.end(claims)
        claims = account.claim_all(1)
        assert len(claims) == 2
        assert account.count("_private_limit_places") == 2
    assert {claim.queue_name for claim in claims} <= {None, "q"}


def test_a_limit_that_was_renamed__does_not_let_parked_jobs_start_without_a_limit(
    make: Callable[..., LimitedJobs],
) -> None:
    """Code with the new name knows no numbers for the old one: the jobs are sorted again, by their new keys."""
    old = make(old={"concurrency": 2})
    old.add_many(300, "old", keys=1)
    old.sort_all()
    running = old.claim_all()
    new = make(account={"concurrency": 2})
    assert (len(running), new.claim_all()) == (2, [])
    old.end(running)
    assert new.claim_all() == []
    assert new.count("_private_limited_jobs") == 0
    new.sort_all()
    assert len(new.claim_all()) == 2


def test_concurrency_that_was_lifted__counts_the_running_jobs_when_it_is_set_again(
    make: Callable[..., LimitedJobs],
) -> None:
    jobs = make(account={"concurrency": 3})
    jobs.execute("insert into {schema}._private_limit_overrides (limit_name, changed_by) values ('account', '')")
    jobs.add(20, account=1)
    jobs.sort_all()
    running = jobs.claim(10).claims
    assert len(running) == 10
    jobs.execute("delete from {schema}._private_limit_overrides")
    assert jobs.claim_all() == []
    jobs.end(running[:8])
    assert len(jobs.claim_all()) == 1


def test_expired_jobs__use_neither_the_rate_nor_a_place(make: Callable[..., LimitedJobs]) -> None:
    jobs = make(account={"rate": "6/m", "concurrency": 2})
    jobs.add(30, account=1, options="flags => array['expires:1000']")
    jobs.add(3, account=1)
    jobs.sort_all()
    claimed = [jobs.claim(5) for _ in range(7)]
    claims = [claim for each in claimed for claim in each.claims]
    assert Counter(claim.flags_text is None for claim in claims) == {False: 30, True: 2}
    assert claimed[0].expired_at is not None
    assert jobs.count("_private_limit_starts") == jobs.count("_private_limit_places") == 2


def test_a_retry__does_not_expire(rated: LimitedJobs) -> None:
    rated.add(1, account=1, options="flags => array['expires:1000']")
    rated.execute("update {schema}._private_jobs set attempts = 1, last_error = 'once'")
    rated.sort_all()
    assert [claim.attempts for claim in rated.claim_all()] == [2]
    assert rated.count("_private_limit_starts") == 1


TABLES = ("jobs", "limited_jobs", "limit_lanes", "limit_keys", "limit_places", "limit_starts")


def test_a_claim__costs_what_it_returns(shared_connection: Connection, worker_schema: str) -> None:
    """There are twenty times as many keys and jobs: a claim reads as much as before."""
    numbers: dict[str, Any] = {"concurrency": 2, "rate": "30/m", "burst": 3}
    jobs = LimitedJobs(shared_connection, worker_schema, account=numbers)
    cursor = MeasuringCursor(shared_connection)
    again = partial(jobs.claim_with, shared_connection.cursor(), 10)
    descents: list[IndexDescents] = []
    full, empty, deeper = [], [], 0
    for keys in (50, 1000):
        for table in TABLES:
            jobs.execute(f"truncate {{schema}}._private_{table}")
        jobs.add_many(keys * 2, "account", keys=keys)
        jobs.sort_all()
        vacuum(jobs)
        deeper = sum(each.pages_of_new_levels() for each in descents)
        assert len(jobs.claim_with(cursor, 10).claims) == 10
        full.append(cursor.buffers)
        descents = [IndexDescents(shared_connection, f'"{worker_schema}"._private_{table}', again) for table in TABLES]
        jobs.limit(account={"concurrency": 1})
        jobs.claim_all(100)
        vacuum(jobs)
        assert jobs.claim_with(cursor, 10).claims == []
        empty.append(cursor.buffers)
        jobs.limit(account=numbers)
    # The indexes are deeper, and the rows of ten jobs lie on pages of their own in each table.
    assert full[1] < full[0] + deeper + 10 * len(TABLES) + 10
    assert full[1] < 1500
    assert max(empty) < 20


def test_lanes_with_a_paused_flag__cost_a_claim_nothing(shared_connection: Connection, worker_schema: str) -> None:
    jobs = LimitedJobs(shared_connection, worker_schema, account={"concurrency": 2})
    jobs.add(1, account="x")
    jobs.sort_all()
    cursor, buffers = MeasuringCursor(shared_connection), []
    for lanes in (100, 5_000):
        jobs.execute(
            """insert into {schema}._private_limit_lanes (
                task_id, key_ids, queue_id, flags, state, priority, head_run_at, head_id, turn, sorted_at)
            select task_id, array[-number], 0, '{"slow": true}', 1, 0, '-infinity', -number, '-infinity', now()
            from {schema}._private_limit_lanes, pg_catalog.generate_series(1, %s) as number where flags = '{}'
            on conflict do nothing""",
            [lanes],
        )
        vacuum(jobs)
        assert len(jobs.claim_with(cursor, 10, forbidden_flags=["slow"]).claims) == 1
        buffers.append(cursor.buffers)
    assert buffers[1] < 1.2 * buffers[0] + 10


def test_lanes_behind_held_queues__are_swept_in_bounded_steps(
    shared_connection: Connection, worker_schema: str
) -> None:
    jobs = LimitedJobs(shared_connection, worker_schema, account={"concurrency": 2})
    jobs.add(1, account="x", options="queue_name => 'q'")
    jobs.sort_all()
    jobs.execute(
        """insert into {schema}._private_job_queues (queue_name, locked_by, locked_at)
        select 'held' || number, 'pause', 'infinity' from pg_catalog.generate_series(1, 4000) as number"""
    )
    jobs.execute(
        """insert into {schema}._private_limit_lanes (
            task_id, key_ids, queue_id, flags, state, priority, head_run_at, head_id, turn, sorted_at)
        select task_id, key_ids, queue.id, '{}', 3, 0, now(), -queue.id, now(), now()
        from {schema}._private_limit_lanes, {schema}._private_job_queues as queue where queue.queue_name like 'held%'"""
    )
    jobs.execute(
        "update {schema}._private_job_queues set locked_by = null, locked_at = null where queue_name = 'held3999'"
    )
    vacuum(jobs)
    cursor, after, steps, woken = MeasuringCursor(shared_connection), limits.Swept(), 0, 0
    limits.sweep(cursor, schema=jobs.schema, numbers=jobs.numbers, after=after)
    assert cursor.buffers < 10 * limits.MAX_SWEPT
    while steps == 0 or after.next_queue is not None:
        with shared_connection.cursor() as plain:
            after = limits.sweep(plain, schema=jobs.schema, numbers=jobs.numbers, after=after)
        steps, woken = steps + 1, woken + after.woken
    assert (steps, woken) == (9, 1)


def vacuum(jobs: LimitedJobs) -> None:
    for table in TABLES:
        jobs.execute(f"vacuum analyze {{schema}}._private_{table}")
