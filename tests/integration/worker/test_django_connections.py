"""Django's connections around a job: open transactions, roles, broken connections, pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, reset_queries, transaction
from django.db.backends.signals import connection_created
from django.test.utils import CaptureQueriesContext

from django_graphile_worker import signals
from django_graphile_worker.worker.outcomes import Failed, Succeeded
from tests.conftest import RawConnection
from tests.support.backends import Pids, backend_pid, execute, terminate
from tests.support.slot import Slot, make_claim, open_slot

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def slot(transactional_db: None) -> Iterator[Slot]:
    with open_slot() as slot:
        yield slot


@pytest.fixture
def leftovers() -> Iterator[list[str]]:
    """What jobs are reported to have left behind."""
    found: list[str] = []

    def note(leftovers: tuple[str, ...], **kwargs: Any) -> None:
        found.extend(leftovers)

    signals.leftover_state_found.connect(note)
    yield found
    signals.leftover_state_found.disconnect(note)


@pytest.fixture
def persistent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)


MAX_AGES = [0, 60, None]


def leaves_atomic_open() -> None:
    transaction.atomic().__enter__()
    execute("select 1")


def leaves_begin() -> None:
    execute("begin")


def leaves_failed_transaction() -> None:
    execute("begin")
    with pytest.raises(DatabaseError):
        execute("select 1/0")


def leaves_autocommit_off() -> None:
    transaction.set_autocommit(False)


def leaves_autocommit_off_and_a_transaction() -> None:
    transaction.set_autocommit(False)
    execute("select 1")


def closes_inside_atomic() -> None:
    transaction.atomic().__enter__()
    connection.close()


def leaves_copy_unfinished() -> None:
    connection.ensure_connection()
    connection.connection.pgconn.send_query(b"copy (select generate_series(1, 100000)) to stdout")


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize(
    ("dirty", "reason"),
    [
        (leaves_atomic_open, "an atomic block open"),
        (leaves_begin, "a transaction open"),
        (leaves_failed_transaction, "a failed transaction open"),
        (leaves_autocommit_off_and_a_transaction, "autocommit switched off"),
        (closes_inside_atomic, "an atomic block open"),
        (leaves_copy_unfinished, "a statement (COPY?) unfinished"),
    ],
)
def test_open_transaction__fails_the_job_and_never_reaches_the_next(
    slot: Slot, dirty: Callable[[], None], reason: str
) -> None:
    pids = Pids()
    slot.run(pids)
    error = slot.failure(lambda payload: dirty()).error
    assert "LeftoverStateError" in error
    assert f"database 'default': {reason}" in error
    assert isinstance(slot.run(pids), Succeeded)
    assert pids.seen[0] != pids.seen[1]
    assert slot.call(lambda: (connection.in_atomic_block, connection.get_autocommit())) == (False, True)


@pytest.mark.usefixtures("persistent")
def test_autocommit_left_off__with_nothing_uncommitted_costs_the_connection_only(
    slot: Slot, leftovers: list[str]
) -> None:
    pids = Pids()
    slot.run(pids)
    assert isinstance(slot.run(lambda payload: leaves_autocommit_off()), Succeeded)
    assert leftovers == ["database 'default': autocommit switched off"]
    slot.run(pids)
    assert pids.seen[0] != pids.seen[1]


@pytest.mark.parametrize("max_age", MAX_AGES)
@pytest.mark.parametrize("health_checks", [True, False])
def test_first_query_after_the_server_went_away__works(
    slot: Slot,
    raw_connection: Callable[..., RawConnection],
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
    max_age: int | None,
    health_checks: bool,
) -> None:
    settings = connection.settings_dict
    monkeypatch.setitem(settings, "CONN_MAX_AGE", max_age)
    monkeypatch.setitem(settings, "CONN_HEALTH_CHECKS", health_checks)
    pids = Pids()
    slot.run(pids)
    terminate(raw_connection(), pids.seen[0], wait_until)
    assert isinstance(slot.run(pids), Succeeded)
    assert pids.seen[0] != pids.seen[1]


@pytest.mark.parametrize(("max_age", "are_kept"), [(0, False), (60, True), (None, True)])
def test_connections__are_kept_as_long_as_the_settings_say(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, max_age: int | None, are_kept: bool
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", max_age)
    pids = Pids()
    slot.run(pids)
    slot.run(pids)
    assert (pids.seen[0] == pids.seen[1]) is are_kept
    assert slot.call(lambda: connection.connection is not None) is are_kept


@pytest.mark.usefixtures("persistent")
def test_error_that_broke_the_connection__costs_one_job(
    slot: Slot, raw_connection: Callable[..., RawConnection], wait_until: Callable[..., None]
) -> None:
    def dies(payload: Any) -> None:
        terminate(raw_connection(), backend_pid(), wait_until)
        execute("select 1")

    error = slot.failure(dies).error
    assert "OperationalError" in error
    assert "also left" not in error
    assert isinstance(slot.run(lambda payload: backend_pid()), Succeeded)


@pytest.mark.parametrize("max_age", [0, None], ids=["closed after each job", "persistent"])
def test_query_log__begins_anew_with_each_job(
    slot: Slot, settings: Any, monkeypatch: pytest.MonkeyPatch, max_age: int | None
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", max_age)
    settings.DEBUG = True
    counts: list[int] = []

    def counts_queries(payload: Any) -> None:
        execute("select 1")
        counts.append(len(connection.queries))

    slot.run(counts_queries)
    slot.run(counts_queries)
    slot.call(reset_queries)
    assert counts == [1, 1]


@pytest.mark.parametrize("error_class", [ValueError, SystemExit])
def test_error_of_the_task__comes_first_and_the_leftover_is_added(slot: Slot, error_class: type[BaseException]) -> None:
    def both(payload: Any) -> None:
        execute("begin")
        raise error_class("boom")

    error = slot.failure(both).error
    assert error.startswith(f"{error_class.__name__}: boom")
    assert "The task also left database 'default': a transaction open" in error


@pytest.mark.usefixtures("persistent")
def test_thread_that_ends__closes_its_connections(
    slot: Slot, raw_connection: Callable[..., RawConnection], wait_until: Callable[..., None]
) -> None:
    pids = Pids()
    slot.run(pids)
    slot.call(slot.executor.thread_finished)
    observer = raw_connection()
    wait_until(lambda: not observer.execute("select 1 from pg_stat_activity where pid = %s", pids.seen).fetchone())
    assert slot.call(lambda: len(connection.execute_wrappers)) == 0


def test_job_without_queries__opens_no_connection(slot: Slot) -> None:
    slot.run(lambda payload: None)
    assert slot.call(lambda: connection.connection) is None


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize(
    "statement",
    [
        "SET ROLE pg_monitor",
        "SET SESSION AUTHORIZATION pg_monitor",
        "SELECT set_config('role', 'pg_monitor', false)",
        "DO $$ begin set role pg_monitor; end $$",
    ],
)
@pytest.mark.parametrize("leftover_state", ["warn", "fail"])
def test_changed_role__never_reaches_the_next_job_and_fails_its_own_only_if_asked(
    leftovers: list[str], statement: str, leftover_state: str
) -> None:
    pids = Pids()
    with open_slot(leftover_state=leftover_state) as slot:
        slot.run(pids)
        outcome = slot.run(lambda payload: execute(statement))
        if leftover_state == "fail":
            assert isinstance(outcome, Failed)
            assert "LeftoverStateError" in outcome.error
            assert "its role changed" in outcome.error
            assert leftovers == []
        else:
            assert isinstance(outcome, Succeeded), "what it did is committed: a second run would do it twice"
            assert "its role changed" in leftovers.pop()
        assert isinstance(slot.run(pids), Succeeded)
    assert pids.seen[0] != pids.seen[1]


@pytest.mark.usefixtures("persistent")
def test_role_of_every_new_connection__is_no_leftover(slot: Slot, leftovers: list[str]) -> None:
    def set_up(*, connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET ROLE pg_monitor")

    connection_created.connect(set_up)
    try:
        slot.executor.start()
        assert isinstance(slot.run(lambda payload: execute("select 1")), Succeeded)
        assert leftovers == []
        # Neither of them is a superuser: libpq reports no difference.
        assert isinstance(slot.run(lambda payload: execute("SET ROLE pg_read_all_data")), Succeeded)
        assert leftovers.pop().endswith("/pg_read_all_data")
        assert isinstance(slot.run(lambda payload: execute("select 1")), Succeeded)
        assert leftovers == []
    finally:
        connection_created.disconnect(set_up)


def test_other_changes_of_a_session__end_with_its_connection(slot: Slot) -> None:
    seen: list[Any] = []
    slot.run(lambda payload: execute("SET statement_timeout = 12345"))
    slot.run(lambda payload: seen.append(execute("SHOW statement_timeout")))
    assert seen == [("0",)]


@pytest.mark.django_db(transaction=False, databases=["default"])
class TestInsideATest:
    """A job that runs on a test's own thread, inside the test's transaction."""

    @pytest.fixture
    def executor(self, db: None) -> Iterator[Any]:
        slot = Slot()
        yield slot
        slot.executor.thread_finished()
        slot.close()

    def run(self, slot: Slot, function: Callable[..., Any]) -> Any:
        return slot.executor.run(make_claim(task_id=slot.task_id(function)))

    def test_connection__stays_open(self, executor: Slot) -> None:
        before = backend_pid()
        assert isinstance(self.run(executor, lambda payload: backend_pid()), Succeeded)
        assert connection.in_atomic_block
        assert backend_pid() == before

    def test_atomic_block_left_open__fails_the_job_and_is_rolled_back(self, executor: Slot) -> None:
        def dirty(payload: Any) -> None:
            transaction.atomic().__enter__()
            execute("create table only_here ()")

        depth = len(connection.savepoint_ids), len(connection.atomic_blocks)
        assert "an atomic block open" in self.run(executor, dirty).error
        assert (len(connection.savepoint_ids), len(connection.atomic_blocks)) == depth
        assert execute("select to_regclass('only_here')") == (None,)
        with transaction.atomic():
            execute("select 1")

    def test_counted_queries__are_all_counted(self, executor: Slot) -> None:
        with CaptureQueriesContext(connection) as queries:
            self.run(executor, lambda payload: execute("select 1"))
            self.run(executor, lambda payload: execute("select 2"))
        assert len(queries) == 2


class TestWithAPool:
    """OPTIONS["pool"]: closing a connection returns it to the pool, with the session that the job changed."""

    @pytest.fixture(params=[True, False], ids=["health checks", "no health checks"])
    def pooled(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        settings = connection.settings_dict
        connection.close()
        monkeypatch.setitem(settings, "CONN_MAX_AGE", 0)
        monkeypatch.setitem(settings, "CONN_HEALTH_CHECKS", request.param)
        monkeypatch.setitem(settings, "OPTIONS", {**settings["OPTIONS"], "pool": {"min_size": 1, "max_size": 1}})
        yield
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]

    @pytest.mark.usefixtures("pooled")
    def test_connection__is_returned_to_the_pool_after_the_job(self, slot: Slot) -> None:
        pids = Pids()
        slot.run(pids)
        slot.run(pids)
        assert slot.call(lambda: connection.connection) is None
        assert connection.pool.get_stats()["requests_num"] == 2  # type: ignore[attr-defined]

    @pytest.mark.usefixtures("pooled")
    @pytest.mark.parametrize("statement", ["begin", "SET ROLE pg_monitor"])
    def test_changed_session__is_not_returned_to_the_pool(self, slot: Slot, statement: str) -> None:
        dirty: list[int] = []

        def careless(payload: Any) -> None:
            dirty.append(backend_pid())
            execute(statement)

        outcome = slot.run(careless)
        assert isinstance(outcome, Failed if statement == "begin" else Succeeded)
        pids = Pids()
        for _ in range(4):
            assert isinstance(slot.run(pids), Succeeded)
        assert dirty[0] not in pids.seen
