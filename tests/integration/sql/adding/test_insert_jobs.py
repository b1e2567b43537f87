"""The functions for jobs without a key do what add_job and add_jobs do for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from django_graphile_worker import JobSpec, add_job, add_jobs, conf
from django_graphile_worker.exceptions import InvalidJobError, SchemaError
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.adding import add_jobs as sql_add_jobs
from django_graphile_worker.sql.adding.insert_jobs import insert_job
from django_graphile_worker.sql.adding.specs import element
from django_graphile_worker.sql.function_calls import call_statements
from django_graphile_worker.sql.schema import statement
from tests.support.added_rows import rows_after, undone
from tests.support.operating import execute, operate
from tests.support.rows import as_job, stored
from tests.support.worker_sql import WorkerSql

# The statement for batches with keys, which calls the public function.
PUBLIC = call_statements("add_jobs", "job.id", "add_jobs", first=sql_add_jobs._SPECS, rest=", %s::boolean")[True]

# The locks of the clients that notify, in the order in which a client tries them.
NOTIFYING = [
    f"select pg_advisory_xact_lock({number}, '{{schema}}'::regnamespace::oid::int)"
    for number in (1735877230, 1735877231)
]

FIRST, LAST = (datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None) for year in (3, 9998))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=6)
specs = st.builds(
    JobSpec,
    st.sampled_from(["send_email", 'a"\\', "line\nbreak", "é"]),
    st.none() | st.dictionaries(texts, st.integers() | texts | st.none(), max_size=2) | st.lists(texts, max_size=2),
    queue_name=st.none() | st.sampled_from(["a", 'b"\\', "{}", "null", "line\nbreak"]),
    run_at=st.none()
    | st.datetimes(FIRST, LAST, timezones=st.just(UTC))
    | st.timedeltas(timedelta(days=-40), timedelta(days=40)),
    max_attempts=st.none() | st.integers(1, 32_767),
    priority=st.none() | st.integers(-32_768, 32_767),
    flags=st.none() | st.lists(texts, max_size=2),
)


@contextmanager
def limited(limit: str | None, duration: str) -> Iterator[None]:
    """Set a time limit of the session of Django's connection, if the server has it."""
    has_limit = limit is not None and execute("select 1 from pg_settings where name = %s", [limit])
    if has_limit:
        execute(f"set {limit} = '{duration}'")
    try:
        yield
    finally:
        if has_limit:
            execute(f"reset {limit}")


def by_the_public_function(given_specs: list[JobSpec]) -> None:
    entries = [(spec, "{}" if spec.payload is None else json.dumps(spec.payload)) for spec in given_specs]
    document = "[" + ",".join(element(*entry) for entry in entries) + "]"
    with connection.cursor() as cursor:
        cursor.execute(statement(PUBLIC, schema()), (document, False))


def schema() -> str:
    return conf.current().schema


def one_by_one(given_specs: list[JobSpec]) -> None:
    for spec in given_specs:
        add_job(**vars(spec))


def comparable(rows: list[Any]) -> list[Any]:
    """Return the rows with the payloads as values: their spaces and escapes are the client's."""
    return [(*row[:2], json.loads(row[2]), *row[3:]) for row in rows]


@pytest.mark.django_db
class TestTheRows:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(specs, min_size=1, max_size=6))
    def test_are_those_of_the_public_function(self, given_specs: list[JobSpec]) -> None:
        with undone():
            expected = comparable(rows_after(lambda: by_the_public_function(given_specs)))
            assert comparable(rows_after(lambda: add_jobs(given_specs))) == expected
            assert comparable(rows_after(lambda: add_jobs(given_specs, returning=False))) == expected
            assert comparable(rows_after(lambda: one_by_one(given_specs))) == expected

    @settings(max_examples=15, deadline=None)
    @given(st.lists(specs, min_size=1, max_size=5))
    def test_are_the_jobs_that_are_returned(self, given_specs: list[JobSpec]) -> None:
        with undone():
            jobs = [*add_jobs(given_specs), *(add_job(**vars(spec)) for spec in given_specs)]
            rows = [as_job(stored(job)) for job in jobs]
            assert jobs == rows
            assert [job.run_at.isoformat() for job in jobs] == [row.run_at.isoformat() for row in rows]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_transaction_with_one_snapshot__puts_back_a_name_that_was_cleaned_up(level: str, owner: WorkerSql) -> None:
    add_job("a", queue_name="q")
    execute("delete from {schema}._private_jobs")
    with transaction.atomic():
        execute(f"set transaction isolation level {level}")
        execute("select 1")
        owner.query("delete from {schema}._private_tasks")
        owner.query("delete from {schema}._private_job_queues")
        jobs = [add_job("a"), add_job("a", queue_name="q"), *add_jobs([JobSpec("a", queue_name="q")])]
    assert [(as_job(stored(job)).task_identifier, job.queue_name) for job in jobs] == [
        ("a", None),
        ("a", "q"),
        ("a", "q"),
    ]


@pytest.mark.django_db
class TestWhatTheDatabaseRefuses:
    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("identifier", "x" * 129, "^Task identifier is too long"),
            ("queue_name", "x" * 129, "^Job queue name is too long"),
            ("max_attempts", 0, "^Job maximum attempts must be at least 1"),
            ("priority", 40_000, "^Job priority must be between"),
            ("run_at", datetime(1, 1, 1, tzinfo=UTC), "^Job run_at must lie in the years"),
        ],
    )
    def test_is_an_invalid_job(self, field: str, value: Any, message: str) -> None:
        spec = JobSpec("a")
        object.__setattr__(spec, field, value)
        for add in (lambda: add_jobs([spec]), lambda: add_jobs([JobSpec("a"), spec], returning=False)):
            with pytest.raises(InvalidJobError, match=message), transaction.atomic():
                add()
        with pytest.raises(DatabaseError, match=message), transaction.atomic():
            insert(spec)
        assert execute("select count(*) from {schema}._private_jobs") == [(0,)]


def insert(spec: JobSpec, *, notify: bool = True) -> Job:
    with connection.cursor() as cursor:
        return insert_job(cursor, spec, "{}", schema=schema(), notify=notify)


@pytest.mark.django_db
def test_a_trigger_that_keeps_rows_away__is_named() -> None:
    execute("create function {schema}.none() returns trigger language plpgsql as $$ begin return null; end $$")
    execute("create trigger none before insert on {schema}._private_jobs for each row execute function {schema}.none()")
    for add in (lambda: add_job("a"), lambda: add_job("a", priority=1), lambda: add_jobs([JobSpec("a")])):
        with pytest.raises(SchemaError, match="a trigger on the table of jobs"):
            add()


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["adder", "keyed-adder"])
def test_a_role_that_may_only_add__adds_through_the_public_functions(kind: str) -> None:
    script = operate("grants", "adding_role", "--kind", kind).out
    execute("create role adding_role")
    execute(script)
    given_specs = [
        JobSpec("a", {"n": 1}),
        JobSpec("b", [2], queue_name="q", priority=3, max_attempts=4, flags=["x", "y"]),
        JobSpec("a", run_at=timedelta(hours=1)),
        JobSpec("a", run_at=datetime(2030, 1, 1, tzinfo=UTC)),
    ]
    execute("set local role adding_role")
    jobs = [*add_jobs(given_specs), *(add_job(**vars(spec)) for spec in given_specs)]
    assert add_jobs(given_specs, returning=False) == 4
    execute("reset role")
    assert jobs == [as_job(stored(job)) for job in jobs]
    assert execute("select count(*) from {schema}._private_jobs") == [(12,)]


@pytest.mark.django_db(transaction=True)
class TestNotifications:
    def test_are_left_to_the_client_that_notifies_after_the_commit(
        self, listener: WorkerSql, committing_worker: Callable[..., WorkerSql]
    ) -> None:
        with committing_worker().connection.transaction() as other:
            for lock in NOTIFYING:
                other.connection.execute(lock.replace("{schema}", f'"{listener.schema}"').encode())
            add_job("a")
            assert listener.notified_counts() == []
        add_job("a")
        assert listener.notified_counts() == [1]

    @pytest.mark.parametrize("limit", [None, "statement_timeout", "lock_timeout", "transaction_timeout"])
    def test_of_a_client_that_cannot_get_the_lock_wake_all_workers_of_the_original(
        self, listener: WorkerSql, committing_worker: Callable[..., WorkerSql], limit: str | None
    ) -> None:
        """Any role can take the lock for ever, and the session may have a time limit."""
        with limited(limit, "3s"), committing_worker().connection.transaction() as other:
            other.connection.execute(NOTIFYING[0].replace("{schema}", f'"{listener.schema}"').encode())
            job = add_job("a")
        assert [row["id"] for row in listener.jobs()] == [job.id]
        assert listener.notified_counts() == [64]

    def test_of_a_client_are_not_left_to_a_silent_client(
        self, listener: WorkerSql, committing_worker: Callable[..., WorkerSql]
    ) -> None:
        holder, silent = committing_worker(), committing_worker()
        silent.query("set graphile_worker.notify = 'off'")
        call = "call {schema}._private_insert_job_and_notify_v3('a', '{}', null, null, null)"
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        with ThreadPoolExecutor(1) as thread, holder.connection.transaction():
            holder.query(NOTIFYING[0])
            answer = thread.submit(silent.query, call)
            while not (answer.done() or listener.value(waiting)):
                pass
            add_job("a")
        assert listener.notified_counts() == [64]

    @pytest.mark.usefixtures("failing_together")
    @pytest.mark.parametrize("setting", ["on", "off"])
    def test_together_are_no_task_of_a_silent_client(
        self, committing_worker: Callable[..., WorkerSql], setting: str
    ) -> None:
        """Others rely on a client that takes the second lock, if only for a moment."""
        holder, client = committing_worker(), committing_worker()
        warnings: list[str | None] = []
        client.connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
        client.query(f"set graphile_worker.notify = '{setting}'")
        with holder.connection.transaction():
            holder.query(NOTIFYING[0])
            client.query("call {schema}._private_insert_job_and_notify_v3('a', '{}', null, null, null)")
        (job,) = client.jobs()
        text = f"Job {job['id']} was added, but workers were not notified: called"
        assert warnings == ([text] if setting == "on" else [])

    @pytest.fixture
    def failing_together(self) -> Iterator[None]:
        execute("alter function {schema}._private_notify_together_v2() rename to _private_notify_now")
        execute(
            "create function {schema}._private_notify_together_v2() returns void language plpgsql as "
            "$$ begin raise exception 'called'; end $$"
        )
        yield
        execute("drop function {schema}._private_notify_together_v2()")
        execute("alter function {schema}._private_notify_now() rename to _private_notify_together_v2")

    def test_tell_how_many_jobs_are_due(self, listener: WorkerSql) -> None:
        later = timedelta(minutes=1)
        add_job("a")
        add_job("a", run_at=timedelta(seconds=5))
        add_job("a", run_at=later)
        add_jobs([JobSpec("a")] * 3)
        add_jobs([JobSpec("a"), JobSpec("a", run_at=later), JobSpec("a", run_at=timedelta(seconds=5))])
        add_jobs([JobSpec("a", run_at=later)])
        add_jobs([JobSpec("a", priority=1)] * 4, returning=False)
        assert listener.notified_counts() == [1, 1, 3, 2, 4]

    def test_are_off_for_the_call_only(self, listener: WorkerSql, settings: Any, role: str) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "NOTIFY": False}
        with transaction.atomic():
            execute(operate("grants", role).out)
            add_job("a")
            add_jobs([JobSpec("a")])
            execute(f"set local role {role}")
            add_job("a")
            add_jobs([JobSpec("a")])
            assert execute("select coalesce(current_setting('graphile_worker.notify', true), '')") == [("",)]
            execute("reset role")
        assert listener.notified_counts() == []


@pytest.mark.django_db(transaction=True)
def test_a_name__is_found_by_its_index__whatever_the_session_planned_before() -> None:
    read = """
        select sum(seq_tup_read) from pg_stat_xact_user_tables
        where relname in ('_private_tasks', '_private_job_queues')"""
    add_job("few", queue_name="few")
    for table in ("_private_tasks", "_private_job_queues"):
        execute(f"analyze {{schema}}.{table}")
    for _ in range(7):
        add_job("few", queue_name="few")
        add_job("few")
    for table, column in (("_private_tasks", "identifier"), ("_private_job_queues", "queue_name")):
        execute(f"insert into {{schema}}.{table} ({column}) select 'n' || n from generate_series(1, 2000) as n")
    with transaction.atomic():
        add_job("n1", queue_name="n1")
        add_job("n2")
        assert execute(read) == [(0,)]


@pytest.mark.django_db(transaction=True)
class TestAJobThatIsAddedAlone:
    """Its transaction has ended when workers are notified, so that clients need not commit one after the other."""

    @pytest.fixture
    def without_notifications(self) -> Iterator[None]:
        """Notifications fail, as they do when the queue of notifications is full."""
        execute("alter function {schema}._private_notify(bigint) rename to _private_notify_now")
        execute(
            "create function {schema}._private_notify(due bigint) returns text language plpgsql as"
            " $$ begin raise exception 'no notification'; end $$"
        )
        yield
        execute("drop function {schema}._private_notify(bigint)")
        execute("alter function {schema}._private_notify_now(bigint) rename to _private_notify")

    @pytest.mark.usefixtures("without_notifications")
    def test_is_committed_before_the_notification__and_no_error_follows(self, owner: WorkerSql) -> None:
        add_job("alone")
        with pytest.raises(DatabaseError, match="no notification"), transaction.atomic():
            add_job("together")
        assert [row["task_identifier"] for row in owner.query("select * from {schema}.jobs")] == ["alone"]

    @pytest.mark.usefixtures("without_notifications")
    @pytest.mark.parametrize("limit", ["statement_timeout", "lock_timeout"])
    def test_is_not_committed_before_an_error_if_the_session_has_a_time_limit(
        self, owner: WorkerSql, limit: str
    ) -> None:
        """The limit could end during the commit, and nothing can catch its error then."""
        with limited(limit, "20s"):
            with pytest.raises(DatabaseError, match="no notification"):
                add_job("first")
            with owner.connection.transaction():
                owner.query(NOTIFYING[0])
                add_job("second")
        assert [row["task_identifier"] for row in owner.query("select * from {schema}.jobs")] == ["second"]

    def test_is_the_job_that_is_returned(self) -> None:
        job = add_job("send_email", {"n": 1})
        assert job == as_job(stored(job))

    @pytest.mark.parametrize("kind", ["statement", "transaction", "pipeline"])
    def test_may_be_in_a_transaction_that_django_does_not_know(self, kind: str) -> None:
        execute("begin" if kind == "statement" else "select 1")
        try:
            # The driver's own contexts; both commit at their end.
            with nullcontext() if kind == "statement" else getattr(connection.connection, kind)():
                connection.cursor().execute("select 1")
                add_job("a")
        finally:
            execute("rollback")
        assert execute("select count(*) from {schema}._private_jobs") == [(0 if kind == "statement" else 1,)]

    def test_is_undone_with_the_transaction_around_it(self) -> None:
        with transaction.atomic():
            add_job("a")
            transaction.set_rollback(True)
        connection.set_autocommit(False)
        try:
            add_job("a")
            connection.rollback()
        finally:
            connection.set_autocommit(True)
        assert execute("select count(*) from {schema}._private_jobs") == [(0,)]
