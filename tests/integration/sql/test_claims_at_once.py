"""Claims beside other transactions: other claims, open changes of jobs, and changes that commit in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_graphile_worker.sql import claims, releases
from django_graphile_worker.sql.claims import Claimed
from django_graphile_worker.sql.codecs import int_array
from tests.conftest import RawConnection
from tests.support.factories import make_job, make_task, minutes_ago

Connect = Callable[..., RawConnection]
Claim = Callable[..., Claimed]


@pytest.fixture
def claim(transactional_db: None, worker_schema: str) -> Claim:
    task_ids = [make_task("task")]

    def claim(connection: RawConnection, token: str = "w/1", **options: Any) -> Claimed:
        limits = {"max_jobs": 10, "max_per_queue": 10} | options
        return claims.claim_jobs(
            connection.cursor(binary=True), schema=worker_schema, token=token, task_ids=task_ids, **limits
        )

    return claim


def ids(claimed: Claimed) -> list[int]:
    return [each.id for each in claimed.claims]


def lock(connection: RawConnection, job_id: int, schema: str) -> None:
    connection.execute(f'select from "{schema}"._private_jobs where id = {job_id} for update'.encode())


@pytest.mark.parametrize("workers", [2, 5])
def test_claims_of_queues_at_once__all_come_back_with_work(claim: Claim, raw_connection: Connect, workers: int) -> None:
    jobs = [make_job(queue_name=f"q{number}", run_at=minutes_ago(60 - number)) for number in range(50)]
    # None of them commits before the last has claimed.
    connections = [raw_connection(autocommit=False) for _ in range(workers)]
    claimed = [ids(claim(connection, f"w/{number}")) for number, connection in enumerate(connections)]
    assert claimed == [jobs[number * 10 : number * 10 + 10] for number in range(workers)]


def test_queues_that_another_claim_locks_and_does_not_take__are_looked_at_again_soon(
    claim: Claim, raw_connection: Connect
) -> None:
    """It finds only after it has locked the queues that the first of them have enough jobs."""
    jobs = [make_job(queue_name=f"q{number // 2}", run_at=minutes_ago(60 - number // 2)) for number in range(20)]
    one, other = raw_connection(autocommit=False), raw_connection()
    assert ids(claim(one, "w/1")) == jobs[:10]
    claimed = claim(other, "w/2")
    assert not claimed.claims
    assert not claimed.has_more
    assert claimed.is_waiting
    one.commit()
    assert ids(claim(other, "w/2")) == jobs[10:]


def test_first_jobs_that_another_claim_has__hide_no_task_behind_them(
    raw_connection: Connect, worker_schema: str
) -> None:
    task_ids = [make_task(f"task {number}") for number in range(12)]
    for _ in range(130):
        make_job("task 0", run_at=minutes_ago(2))
    behind = make_job("task 1", run_at=minutes_ago(1))
    limits: dict[str, Any] = {"schema": worker_schema, "task_ids": task_ids, "max_per_queue": 1}
    one, other = raw_connection(autocommit=False).cursor(binary=True), raw_connection().cursor(binary=True)
    assert len(claims.claim_jobs(one, token="w/1", max_jobs=130, **limits).claims) == 130
    claimed = claims.claim_jobs(other, token="w/2", max_jobs=10, **limits)
    while not claimed.claims:
        assert claimed.has_more
        claimed = claims.claim_jobs(other, token="w/2", max_jobs=10, behind=claimed.continuation, **limits)
    assert ids(claimed) == [behind]


def test_job_that_the_same_transaction_has_locked__is_claimed(
    claim: Claim, raw_connection: Connect, worker_schema: str
) -> None:
    """As in tests of projects, in which one transaction adds, locks and runs jobs."""
    first, second = make_job(run_at=minutes_ago(2)), make_job(run_at=minutes_ago(1))
    connection = raw_connection(autocommit=False)
    lock(connection, first, worker_schema)
    with connection.transaction():
        lock(connection, second, worker_schema)
    assert ids(claim(connection, max_jobs=100)) == [first, second]


def test_job_whose_lock_was_rolled_back__is_claimed(claim: Claim, raw_connection: Connect, worker_schema: str) -> None:
    """The row still names the transaction, which no longer runs."""
    jobs = [make_job() for _ in range(100)]
    site, worker = raw_connection(autocommit=False), raw_connection()
    lock(site, jobs[0], worker_schema)
    site.rollback()
    assert ids(claim(worker, max_jobs=100)) == jobs


def test_head_of_a_queue_that_is_locked__stops_the_queue(
    claim: Claim, raw_connection: Connect, worker_schema: str
) -> None:
    first, second = make_job(queue_name="q", run_at=minutes_ago(2)), make_job(queue_name="q", run_at=minutes_ago(1))
    other = make_job(queue_name="other")
    site, worker = raw_connection(autocommit=False), raw_connection()
    lock(site, first, worker_schema)
    claimed = claim(worker)
    assert ids(claimed) == [other]
    # No notification says that the transaction has ended: the worker claims again soon.
    assert not claimed.has_more
    assert claimed.is_waiting
    site.rollback()
    assert ids(claim(worker)) == [first, second]


@pytest.mark.parametrize("max_jobs", [1, 3])
def test_head_of_a_queue_that_is_locked__costs_no_other_job_its_turn(
    claim: Claim, raw_connection: Connect, worker_schema: str, max_jobs: int
) -> None:
    """The jobs of such a queue fill the claim, and none of them can be claimed."""
    stuck = [make_job(queue_name="q", run_at=minutes_ago(60 - number)) for number in range(5)]
    others = [make_job(run_at=minutes_ago(9 - number)) for number in range(2)]
    site, worker = raw_connection(autocommit=False), raw_connection()
    lock(site, stuck[0], worker_schema)
    assert ids(claim(worker, max_jobs=max_jobs)) == others[:max_jobs]
    claim(worker)
    # Nothing else is left: claims that follow each other at once would find nothing for as long as it is locked.
    claimed = claim(worker, max_jobs=max_jobs)
    assert not claimed.claims
    assert not claimed.has_more


def test_job_of_a_queue_that_is_locked__ends_the_claim_of_the_queue(
    claim: Claim, raw_connection: Connect, worker_schema: str
) -> None:
    jobs = [make_job(queue_name="q", run_at=minutes_ago(9 - number)) for number in range(5)]
    site, worker = raw_connection(autocommit=False), raw_connection()
    lock(site, jobs[2], worker_schema)
    assert ids(claim(worker)) == jobs[:2]


def test_head_of_a_queue_that_is_put_off__lets_the_next_job_start(
    claim: Claim, raw_connection: Connect, worker_schema: str
) -> None:
    first, second = make_job(queue_name="q", run_at=minutes_ago(2)), make_job(queue_name="q", run_at=minutes_ago(1))
    site, worker = raw_connection(autocommit=False), raw_connection()
    site.execute(
        f"""update "{worker_schema}"._private_jobs set run_at = now() + interval '1 day' where id = {first}""".encode()
    )
    assert ids(claim(worker)) == []
    site.commit()
    assert ids(claim(worker)) == [second]


WAITING_AT_THE_GATE = """select count(*) from pg_locks where classid = 4712 and not granted
    and database = (select oid from pg_database where datname = current_database())"""


@pytest.fixture
def gated_role(raw_connection: Connect, worker_schema: str) -> Iterator[Callable[..., RawConnection]]:
    """Sessions of a role for which looking at a job waits for an advisory lock on the job's id."""
    owner = raw_connection()
    # Roles belong to the server, which other processes of the tests use, too.
    role = f"gated_{owner.info.backend_pid}"
    owner.execute(f"create role {role}".encode())
    owner.execute(f'grant usage on schema "{worker_schema}" to {role}'.encode())
    owner.execute(f'grant all on all tables in schema "{worker_schema}" to {role}'.encode())
    owner.execute(f'grant execute on all functions in schema "{worker_schema}" to {role}'.encode())
    owner.execute(
        "create function public.gate(id bigint) returns boolean language plpgsql as"
        " $$ begin perform pg_advisory_xact_lock_shared(4712, id::int); return true; end $$"
    )
    owner.execute(f'create policy gate on "{worker_schema}"._private_jobs to {role} using (public.gate(id))'.encode())

    def connect(**options: Any) -> RawConnection:
        connection = raw_connection(**options)
        connection.execute(f"set role {role}".encode())
        return connection

    yield connect
    owner.execute(f'drop policy gate on "{worker_schema}"._private_jobs'.encode())
    owner.execute("drop function public.gate(bigint)")
    owner.execute(f"drop owned by {role}".encode())
    owner.execute(f"drop role {role}".encode())


def test_job_that_is_changed_between_look_and_lock__is_claimed_as_it_is_now(
    claim: Claim,
    gated_role: Callable[..., RawConnection],
    raw_connection: Connect,
    worker_schema: str,
    wait_until: Callable[..., None],
) -> None:
    jobs = [make_job(run_at=minutes_ago(9 - number)) for number in range(4)]
    site, worker = raw_connection(), gated_role()
    site.execute(f"select pg_advisory_lock(4712, {jobs[1]})".encode())
    with ThreadPoolExecutor() as threads:
        under_way = threads.submit(claim, worker, max_jobs=3)
        wait_until(lambda: site.execute(WAITING_AT_THE_GATE).fetchone() == (1,))
        site.execute(
            f'update "{worker_schema}"._private_jobs set max_attempts = 7 where id = any (%s)'.encode(), [jobs[1:3]]
        )
        site.execute(f"select pg_advisory_unlock(4712, {jobs[1]})".encode())
        claimed = under_way.result(60)
    assert ids(claimed) == jobs[:3]
    assert [each.max_attempts for each in claimed.claims] == [25, 7, 7]
    assert claimed.has_more


def test_jobs_that_another_claim_takes_after_the_look__can_be_deleted_at_once(
    claim: Claim,
    gated_role: Callable[..., RawConnection],
    raw_connection: Connect,
    worker_schema: str,
    wait_until: Callable[..., None],
) -> None:
    """A claim that tried to lock them would lock what the other claim has written, and keep that until its end."""
    site, quick = raw_connection(), raw_connection()

    def could_be_deleted() -> bool | None:
        """Return None if other tests, in other databases of the server, have begun too many transactions meanwhile."""
        jobs = [make_job(run_at=minutes_ago(300 - number)) for number in range(220)]
        site.execute(f"select pg_advisory_lock(4712, {jobs[1]})".encode())
        (next_transaction,) = site.execute("select pg_snapshot_xmax(pg_current_snapshot())::text").fetchone() or ()
        with gated_role(autocommit=False) as slow, ThreadPoolExecutor() as threads:
            under_way = threads.submit(claim, slow, "slow/1", max_jobs=100)
            wait_until(lambda: site.execute(WAITING_AT_THE_GATE).fetchone() == (1,))
            taken = claim(quick, "quick/1", max_jobs=100)
            site.execute(f"select pg_advisory_unlock(4712, {jobs[1]})".encode())
            claimed = under_way.result(60)
            assert ids(taken) == jobs[1:101]
            assert ids(claimed) == [jobs[0], *jobs[101:200]]
            # Without the job at which the claim waited: it was looked at before.
            written = f'select xmin::text from "{worker_schema}"._private_jobs where id = %s'
            (transaction,) = site.execute(written.encode(), [jobs[1]]).fetchone() or ()
            rest = taken.claims[1:]
            could_be = len(releases.complete_jobs(quick.cursor(), rest, schema=worker_schema)) == len(rest)
        site.execute(f'delete from "{worker_schema}"._private_jobs'.encode())
        # The claim passes over the rows of so many transactions that begin after its snapshot.
        return could_be if int(transaction) - int(next_transaction) < 16 else None

    assert next(could_be for _ in range(50) if (could_be := could_be_deleted()) is not None)


def test_child_table__is_not_claimed_from(claim: Claim, raw_connection: Connect, worker_schema: str) -> None:
    """An archive that inherits from the table of jobs has rows at the same places."""
    jobs, connection = f'"{worker_schema}"._private_jobs', raw_connection()
    ready = [make_job() for _ in range(3)]
    queued = make_job(queue_name="q")
    connection.execute(f'create table "{worker_schema}".archive () inherits ({jobs})'.encode())
    try:
        columns = "id, task_id, job_queue_id"
        connection.execute(
            f'insert into "{worker_schema}".archive ({columns}) select {columns} from only {jobs}'.encode()
        )
        assert ids(claim(connection)) == [*ready, queued]
        connection.execute(f"update only {jobs} set locked_at = null, locked_by = null, attempts = 0".encode())
        connection.execute(f"update only {jobs} set job_queue_id = null".encode())
        found = take_few(connection, worker_schema)
        assert [each.id for each in found.claims] == [*ready, queued]
        locked = f'select count(*) from "{worker_schema}".archive where locked_by is not null'
        assert connection.execute(locked.encode()).fetchone() == (0,)
    finally:
        connection.execute(f'drop table "{worker_schema}".archive'.encode())


@pytest.mark.parametrize("tasks", [1, 2])
def test_job_without_a_queue_that_is_locked__is_looked_for_again_soon(
    raw_connection: Connect, worker_schema: str, tasks: int
) -> None:
    """Nobody announces that a transaction let go of a row."""
    task_ids = [make_task(f"task {number}") for number in range(tasks)]
    locked, free = (make_job(f"task {number % tasks}", run_at=minutes_ago(2 - number)) for number in range(2))
    site, worker = raw_connection(autocommit=False), raw_connection()
    lock(site, locked, worker_schema)
    options: dict[str, Any] = {"schema": worker_schema, "task_ids": task_ids, "max_jobs": 10, "max_per_queue": 1}
    claimed = claims.claim_jobs(worker.cursor(binary=True), token="w/1", **options)
    assert ids(claimed) == [free]
    assert not claimed.has_more
    assert claimed.is_waiting
    site.rollback()
    assert ids(claims.claim_jobs(worker.cursor(binary=True), token="w/2", **options)) == [locked]


def test_locked_job_beside_one_that_a_fast_claim_takes__is_looked_for_again_soon(
    claim: Claim, raw_connection: Connect, worker_schema: str
) -> None:
    locked, free = make_job(run_at=minutes_ago(2)), make_job(run_at=minutes_ago(1))
    site, worker = raw_connection(autocommit=False), raw_connection()
    lock(site, locked, worker_schema)
    found = take_few(worker, worker_schema)
    assert [each.id for each in found.claims] == [free]
    assert found.seconds_until_next is not None
    assert found.seconds_until_next <= 0.1


def take_few(connection: RawConnection, schema: str) -> claims.FastClaimed:
    def execute(parameters: Any) -> Any:
        return connection.pgconn.exec_params(claims.fast_claim_statement(schema).encode(), parameters)

    task_ids = int_array([make_task("task")]).encode()
    return claims.claim_few(execute, token="w/1", task_ids=task_ids, max_jobs=10)
