"""What a job leaves on its database connections: nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, reset_queries, transaction
from django.db.backends.signals import connection_created
from django.test.utils import CaptureQueriesContext

from django_graphile_worker import signals
from django_graphile_worker.worker.connections import lifecycle
from django_graphile_worker.worker.connections.watched import WatchedConnection
from django_graphile_worker.worker.outcomes import Failed, Succeeded
from tests.conftest import RawConnection
from tests.support.slot import Slot, make_claim, open_slot

pytestmark = pytest.mark.django_db(transaction=True)

MAX_AGES = [0, 60, None]


@pytest.fixture
def slot(transactional_db: None) -> Iterator[Slot]:
    with open_slot() as slot:
        yield slot


@pytest.fixture
def leftovers() -> Iterator[list[str]]:
    """What jobs are said to have left behind."""
    found: list[str] = []

    def note(leftovers: tuple[str, ...], **kwargs: Any) -> None:
        found.extend(leftovers)

    signals.leftover_state_found.connect(note)
    yield found
    signals.leftover_state_found.disconnect(note)


@pytest.fixture
def persistent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)


def execute(statement: str, alias: str = "default") -> Any:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone() if cursor.description else None


def backend_pid(alias: str = "default") -> int:
    return int(execute("select pg_backend_pid()", alias)[0])


class Pids:
    """A task that remembers which server process it spoke to."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, payload: Any) -> None:
        self.seen.append(backend_pid())


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
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SET statement_timeout = 12345", "setting statement_timeout = 12345"),
        ("SET statement_timeout = 1", "statement"),
        ("SET TIME ZONE 'Asia/Tokyo'", "setting TimeZone = Asia/Tokyo"),
        ("SELECT set_config('shop.tenant', '7', false)", "setting shop.tenant = 7"),
        ("SET shop.tenant = '7'", "setting shop.tenant = 7"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "default_transaction_read_only = on"),
        ("SET ROLE pg_monitor", "setting role = pg_monitor"),
        ("LISTEN news", "channel listened to news"),
        ("SELECT pg_advisory_lock(7)", "advisory lock 0/7/1"),
        ("CREATE TEMP TABLE left_over (a int)", "temporary table left_over"),
        ("PREPARE left_over AS SELECT 1", "prepared statement left_over"),
        ("DECLARE left_over CURSOR WITH HOLD FOR SELECT 1", "open cursor left_over"),
        ("DO $$ begin set work_mem = '1MB'; end $$", "setting work_mem = 1024"),
    ],
)
@pytest.mark.parametrize("leftover_state", ["warn", "fail"])
def test_changed_session__never_reaches_the_next_job_and_fails_its_own_only_if_asked(
    leftovers: list[str], statement: str, reason: str, leftover_state: str
) -> None:
    pids = Pids()
    with open_slot(leftover_state=leftover_state) as slot:
        slot.run(pids)
        outcome = slot.run(lambda payload: execute(statement))
        if leftover_state == "fail":
            assert isinstance(outcome, Failed)
            assert "LeftoverStateError" in outcome.error
            assert reason in outcome.error
            assert leftovers == []
        else:
            assert isinstance(outcome, Succeeded), "what it did is committed: a second run would do it twice"
            assert reason in leftovers.pop()
        assert isinstance(slot.run(pids), Succeeded)
    assert pids.seen[0] != pids.seen[1]


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


def test_changed_session__is_logged(slot: Slot, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="django_graphile_worker.jobs"):
        slot.run(lambda payload: execute("SET statement_timeout = 12345"))
    (record,) = caplog.records
    assert "a_task #1 succeeded, but left the state of its connections changed" in record.getMessage()
    assert "setting statement_timeout = 12345" in record.getMessage()


@pytest.fixture
def function_in_database(
    raw_connection: Callable[..., RawConnection], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """Run DDL, and undo it at the end of the test."""
    # What an earlier test taught the process of functions of the same name is not true any more.
    monkeypatch.setattr(WatchedConnection, "_functions", {})
    admin = raw_connection()

    def create(statement: str) -> None:
        admin.execute(statement)

    yield create
    admin.execute("drop table if exists public.leaky_table")
    admin.execute("drop function if exists public.leaky, public.leaky_too, public.leaky_trigger")


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("perform set_config('search_path', 'nowhere', false);", "setting search_path = nowhere"),
        ("set statement_timeout = 12345;", "setting statement_timeout = 12345"),
        ("perform set_config('shop.tenant', '7', false);", "setting shop.tenant = 7"),
        ("perform pg_advisory_lock(7);", "advisory lock 0/7/1"),
        ("execute 'set work_mem = ''1MB''';", "setting work_mem = 1024"),
        ("perform public.leaky_too();", "setting shop.tenant = 8"),
    ],
)
def test_session_changed_inside_a_function__is_noticed(
    slot: Slot, function_in_database: Callable[[str], None], leftovers: list[str], body: str, reason: str
) -> None:
    function_in_database(
        "create function public.leaky_too() returns void language sql as "
        "$$ select set_config('shop.tenant', '8', false) $$;"
        f"create function public.leaky() returns int language plpgsql as $$ begin {body} return 1; end $$"
    )
    pids = Pids()
    slot.run(pids)
    assert isinstance(slot.run(lambda payload: execute("SELECT public.leaky()")), Succeeded)
    assert reason in leftovers.pop()
    assert isinstance(slot.run(pids), Succeeded)
    assert pids.seen[0] != pids.seen[1]


@pytest.mark.usefixtures("persistent")
def test_session_changed_by_a_trigger__is_noticed(
    slot: Slot, function_in_database: Callable[[str], None], leftovers: list[str]
) -> None:
    function_in_database(
        "create table public.leaky_table (a int);"
        "create function public.leaky_trigger() returns trigger language plpgsql as "
        "$$ begin set work_mem = '1MB'; return new; end $$;"
        "create trigger leaky before insert on public.leaky_table for each row execute function public.leaky_trigger()"
    )
    assert isinstance(slot.run(lambda payload: execute("INSERT INTO public.leaky_table VALUES (1)")), Succeeded)
    assert "setting work_mem = 1024" in leftovers.pop()


@pytest.mark.usefixtures("persistent")
def test_jobs_that_call_nothing_that_changes_sessions__cost_no_statement_more(
    slot: Slot, function_in_database: Callable[[str], None]
) -> None:
    function_in_database(
        "create table public.leaky_table (a int);"
        "create function public.leaky() returns int language plpgsql as $$ declare n int; begin "
        "update public.leaky_table set a = 1; select count(*) into n from public.leaky_table; return n; end $$;"
        "create function public.leaky_trigger() returns trigger language plpgsql as "
        "$$ begin new.a = new.a + public.leaky(); set local work_mem = '1MB'; return new; end $$;"
        "create trigger leaky before insert on public.leaky_table for each row execute function public.leaky_trigger()"
    )

    def usual(payload: Any) -> None:
        execute("SELECT public.leaky()")
        execute("INSERT INTO public.leaky_table VALUES (1)")
        execute("SELECT count(*), lower('A'), (SELECT max(oid) FROM pg_class WHERE relname IN ('a')) FROM pg_class")
        execute("SELECT jsonb_build_object('a', 1)")

    def statements() -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            usual({})
            lifecycle.end()
        return [query["sql"] for query in captured.captured_queries]

    slot.run(usual)
    assert len(slot.call(statements)) == 4


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize(
    "statement",
    [
        "SET LOCAL statement_timeout = 12345",
        "SELECT set_config('shop.tenant', '7', true)",
        "SELECT set_config('shop.' || 'tenant', '7', 1 = 1)",
        "SELECT pg_advisory_xact_lock(7)",
        "CREATE TEMP TABLE gone (a int) ON COMMIT DROP",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "DECLARE gone CURSOR FOR SELECT 1",
        "DO $$ begin end $$",
    ],
)
def test_what_ends_with_its_transaction__is_no_leftover(slot: Slot, statement: str) -> None:
    def careful(payload: Any) -> None:
        with transaction.atomic():
            execute(statement)

    pids = Pids()
    for _ in range(2):
        slot.run(pids)
        assert isinstance(slot.run(careful), Succeeded)
    slot.run(pids)
    # The first suspicion may cost a new connection, to learn what is usual here.
    assert len(set(pids.seen[1:])) == 1


@pytest.mark.usefixtures("persistent")
def test_setting_named_by_a_parameter__is_seen(slot: Slot, leftovers: list[str]) -> None:
    def careless(payload: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config(%s, %s, %s)", ["shop.tenant", "7", False])

    assert isinstance(slot.run(careless), Succeeded)
    assert "setting shop.tenant = 7" in leftovers.pop()


@pytest.mark.usefixtures("persistent")
def test_what_is_undone__is_no_leftover(slot: Slot) -> None:
    def careful(payload: Any) -> None:
        execute("SET statement_timeout = 12345")
        execute("RESET statement_timeout")
        execute("SELECT pg_advisory_lock(7)")
        execute("SELECT pg_advisory_unlock(7)")

    assert isinstance(slot.run(careful), Succeeded)


@pytest.mark.usefixtures("persistent")
def test_settings_of_every_new_connection__are_no_leftover(slot: Slot, leftovers: list[str]) -> None:
    def set_up(*, connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 54321")

    def careful(payload: Any) -> None:
        with transaction.atomic():
            execute("SELECT set_config('shop.' || 'tenant', '7', 1 = 1)")

    def careless(payload: Any) -> None:
        execute("SET statement_timeout = 12345")

    connection_created.connect(set_up)
    try:
        slot.executor.start()
        assert isinstance(slot.run(careful), Succeeded)
        assert isinstance(slot.run(careful), Succeeded)
        assert leftovers == []
        assert isinstance(slot.run(careless), Succeeded)
        assert "setting statement_timeout = 12345" in leftovers.pop()
        assert isinstance(slot.run(careful), Succeeded)
    finally:
        connection_created.disconnect(set_up)


@pytest.mark.parametrize("trouble", [ValueError, SystemExit])
def test_trouble_of_the_task_itself__comes_first_and_the_leftover_is_added(
    slot: Slot, trouble: type[BaseException]
) -> None:
    def both(payload: Any) -> None:
        execute("begin")
        raise trouble("boom")

    error = slot.failure(both).error
    assert error.startswith(f"{trouble.__name__}: boom")
    assert "The task also left database 'default': a transaction open" in error


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_leftover_on_another_database__is_seen(slot: Slot) -> None:
    assert "database 'other': a transaction open" in slot.failure(lambda payload: execute("begin", "other")).error


@pytest.mark.usefixtures("persistent")
def test_cursor_left_open__is_seen(slot: Slot, leftovers: list[str]) -> None:
    kept: list[Any] = []

    def leaks(payload: Any) -> None:
        cursor = connection.chunked_cursor()
        cursor.execute("select generate_series(1, 100)")
        cursor.fetchone()
        kept.append(cursor)

    def careful(payload: Any) -> None:
        with connection.chunked_cursor() as cursor:
            cursor.execute("select generate_series(1, 100)")
            cursor.fetchone()

    assert isinstance(slot.run(leaks), Succeeded)
    assert "open cursor _django_curs" in leftovers.pop()
    pids = Pids()
    slot.run(pids)
    assert isinstance(slot.run(careful), Succeeded)
    slot.run(pids)
    assert len(set(pids.seen)) == 1
    slot.call(lambda: kept.pop().close())


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


def terminate(observer: RawConnection, pid: int, wait_until: Callable[..., None]) -> None:
    observer.execute("select pg_terminate_backend(%s)", [pid])
    wait_until(lambda: not observer.execute("select 1 from pg_stat_activity where pid = %s", [pid]).fetchone())


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


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize("moment", ["begin", "end"])
def test_connection_that_cannot_be_checked__is_closed_and_harms_no_job(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def broken(self: Any) -> None:
        raise RuntimeError("no answer")

    pids = Pids()
    slot.run(pids)
    with monkeypatch.context() as patch:
        patch.setattr(f"django_graphile_worker.worker.connections.watched.WatchedConnection.{moment}", broken)
        assert isinstance(slot.run(lambda payload: None), Succeeded)
    slot.run(pids)
    assert pids.seen[0] != pids.seen[1]


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
def test_innocent_job__costs_no_query(slot: Slot, raw_connection: Callable[..., RawConnection]) -> None:
    pids = Pids()
    for _ in range(3):
        slot.run(pids)
    (statement,) = (
        raw_connection().execute("select query from pg_stat_activity where pid = %s", pids.seen[:1]).fetchall()
    )
    assert statement == ("select pg_backend_pid()",)


def test_query_log__begins_anew_with_each_job(slot: Slot, settings: Any, persistent: None) -> None:
    settings.DEBUG = True
    counts: list[int] = []

    def counts_queries(payload: Any) -> None:
        execute("select 1")
        counts.append(len(connection.queries))

    slot.run(counts_queries)
    slot.run(counts_queries)
    slot.call(reset_queries)
    assert counts == [1, 1]


@pytest.mark.usefixtures("persistent")
def test_health_check__is_due_again_with_each_job(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)
    were_done: list[bool] = []

    def looks(payload: Any) -> None:
        were_done.append(connection.health_check_done)  # type: ignore[attr-defined]
        backend_pid()

    for _ in range(3):
        slot.run(looks)
    assert were_done[1:] == [False, False]


@pytest.mark.usefixtures("persistent")
def test_queries_that_a_test_counts__are_not_forgotten() -> None:
    """A job on the test's own thread, outside any transaction."""
    slot = Slot()
    claim = make_claim(task_id=slot.task_id(lambda payload: execute("select 1")))
    with CaptureQueriesContext(connection) as queries:
        slot.executor.run(claim)
        slot.executor.run(claim)
    assert len(queries) == 2
    slot.executor.thread_finished()
    slot.close()


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
    """OPTIONS["pool"]: closing a connection gives it back, with whatever its session has become."""

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
    def test_connection__is_given_back_after_the_job(self, slot: Slot) -> None:
        pids = Pids()
        slot.run(pids)
        slot.run(pids)
        assert slot.call(lambda: connection.connection) is None
        assert connection.pool.get_stats()["requests_num"] == 2  # type: ignore[attr-defined]

    @pytest.mark.usefixtures("pooled")
    @pytest.mark.parametrize(
        "statement", ["begin", "SET statement_timeout = 12345", "LISTEN news", "SELECT pg_advisory_lock(7)"]
    )
    def test_dirty_session__is_not_given_back(self, slot: Slot, statement: str) -> None:
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

    @pytest.mark.usefixtures("pooled")
    def test_first_query_after_the_server_went_away__works(
        self, slot: Slot, raw_connection: Callable[..., RawConnection], wait_until: Callable[..., None]
    ) -> None:
        pids = Pids()
        slot.run(pids)
        terminate(raw_connection(), pids.seen[0], wait_until)
        assert isinstance(slot.run(pids), Succeeded)
        assert pids.seen[0] != pids.seen[1]
