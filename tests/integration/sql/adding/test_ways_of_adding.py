"""One job, many jobs and streams of jobs: each way of adding leaves and returns the rows of the SQL function."""

from __future__ import annotations

import json
import traceback
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker import JobSpec, add_job, add_jobs, conf
from django_graphile_worker.exceptions import InvalidJobError, SchemaError
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.adding import add_job as add_one
from tests.support.added_rows import rows_after, undone
from tests.support.operating import execute, operate
from tests.support.rows import as_job, stored
from tests.support.worker_sql import WorkerSql

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

ADD = """
    select id from {schema}.add_job(
        identifier => %s, payload => %s, queue_name => %s, run_at => coalesce(%s, now() + %s), max_attempts => %s,
        priority => %s, flags => %s)"""


def by_the_public_function(given_specs: list[JobSpec]) -> None:
    for spec in given_specs:
        payload = "{}" if spec.payload is None else json.dumps(spec.payload)
        moment = spec.run_at if isinstance(spec.run_at, datetime) else None
        delay = spec.run_at if isinstance(spec.run_at, timedelta) else None
        flags = None if spec.flags is None else list(spec.flags)
        options = [spec.queue_name, moment, delay, spec.max_attempts, spec.priority, flags]
        execute(ADD, [spec.identifier, payload, *options])


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
    @given(st.lists(specs, min_size=1, max_size=6))
    def test_are_those_of_the_public_function(self, given_specs: list[JobSpec]) -> None:
        with undone():
            expected = comparable(rows_after(lambda: by_the_public_function(given_specs)))
            assert comparable(rows_after(lambda: add_jobs(given_specs))) == expected
            assert comparable(rows_after(lambda: add_jobs(given_specs, returning=False))) == expected
            assert comparable(rows_after(lambda: one_by_one(given_specs))) == expected

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
        # The type job_spec of graphile-worker has no room for such a priority.
        in_specs = "^smallint out of range" if field == "priority" else message
        for add in (lambda: add_jobs([spec]), lambda: add_jobs([JobSpec("a"), spec], returning=False)):
            with pytest.raises(InvalidJobError, match=in_specs), transaction.atomic():
                add()
        with pytest.raises(DatabaseError, match=message), transaction.atomic():
            insert(spec)
        assert execute("select count(*) from {schema}._private_jobs") == [(0,)]


def insert(spec: JobSpec, *, notify: bool = True) -> Job:
    with connection.cursor() as cursor:
        return add_one(cursor, spec, "{}", schema=schema(), notify=notify)


@pytest.mark.django_db
def test_a_trigger_that_keeps_rows_away__is_named() -> None:
    execute("create function {schema}.none() returns trigger language plpgsql as $$ begin return null; end $$")
    execute("create trigger none before insert on {schema}._private_jobs for each row execute function {schema}.none()")
    for add in (lambda: add_job("a"), lambda: add_job("a", priority=1), lambda: add_jobs([JobSpec("a")])):
        with pytest.raises(SchemaError, match="a trigger on its table of jobs"):
            add()


@pytest.mark.django_db
class TestATableThatTheSiteHasChanged:
    def test_may_have_a_trigger_that_changes_ids(self) -> None:
        execute(
            "create function {schema}.move() returns trigger language plpgsql as "
            "$$ begin new.id = new.id + 1000000; return new; end $$"
        )
        execute(
            "create trigger move before insert on {schema}._private_jobs for each row execute function {schema}.move()"
        )
        jobs = [add_job("a"), *add_jobs([JobSpec("a"), JobSpec("a")]), *add_jobs([JobSpec("a", priority=1)])]
        assert jobs == [as_job(stored(job)) for job in jobs]

    def test_may_have_a_rule(self) -> None:
        execute("create table {schema}.audit (n bigint)")
        execute(
            "create rule audit as on insert to {schema}._private_jobs do also insert into {schema}.audit values (1)"
        )
        add_jobs([JobSpec("a")] * 3, returning=False)
        assert execute("select count(*) from {schema}.audit") == [(3,)]


@pytest.mark.django_db
def test_an_error_of_the_server__shows_no_payload() -> None:
    given_specs = [JobSpec("a", {"password": "hunter2"}) for _ in range(12)]
    object.__setattr__(given_specs[7], "max_attempts", 0)
    with pytest.raises(InvalidJobError, match=r"^Job maximum attempts must") as refused, transaction.atomic():
        add_jobs(given_specs)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


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
class TestATransactionOfTheCaller:
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
