"""COPY stores what the other statements store for jobs without a key and a time, and adds all jobs or none."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError, connection, transaction
from django.utils.functional import lazy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus

from django_graphile_worker import JobSpec, Limit, PayloadError, add_job, add_jobs, models, task
from django_graphile_worker.api import copying, entries
from django_graphile_worker.exceptions import InvalidJobError, SchemaError
from django_graphile_worker.registry import tasks
from django_graphile_worker.sql import overlap
from django_graphile_worker.sql.adding import copy_jobs
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.testing import clock
from tests.support.added_rows import ROWS, rows_after
from tests.support.operating import execute, operate
from tests.support.rows import as_job, stored
from tests.support.worker_sql import WorkerSql

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=6)
specs = st.builds(
    JobSpec,
    st.sampled_from(["send_email", 'a"\\', "line\nbreak", "tab\t", "é", r"\N"]),
    st.none() | st.dictionaries(texts, st.integers() | texts | st.none(), max_size=2) | texts,
    queue_name=st.none() | st.sampled_from(["a", 'b"\\', "{}", "null", "line\nbreak", r"\N"]),
    max_attempts=st.none() | st.integers(1, 32_767),
    priority=st.none() | st.integers(-32_768, 32_767),
    flags=st.none() | st.lists(texts, max_size=2),
)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Copy any number of jobs, two at a time. Return what is written."""
    lines: list[str] = []
    write = overlap.Copying.write

    def noted(rows: overlap.Copying, text: str) -> None:
        lines.append(text)
        write(rows, text)

    monkeypatch.setattr(overlap.Copying, "write", noted)
    # The first record of an unknown task interrupts COPY.
    monkeypatch.setattr(entries, "logged_names", {"a"})
    monkeypatch.setattr(copying, "COPIED_SPECS", 1)
    monkeypatch.setattr(copying, "WRITTEN_SPECS", 2)
    return lines


def numbers() -> list[Any]:
    return [job.payload["n"] for job in models.Job.objects.order_by("id")]


def is_copying() -> bool:
    return bool(connection.connection.info.transaction_status == TransactionStatus.ACTIVE)


@pytest.mark.django_db
class TestTheRows:
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(specs, min_size=1, max_size=6))
    def test_are_those_of_single_jobs(self, written: list[str], given_specs: list[JobSpec]) -> None:
        with transaction.atomic():
            expected = rows_after(lambda: [add_job(**vars(spec)) for spec in given_specs])
            assert written == []
            assert rows_after(lambda: add_jobs(given_specs)) == expected
            assert rows_after(lambda: add_jobs(iter(given_specs), returning=False)) == expected
            assert rows_after(lambda: add_jobs(given_specs, returning=False)) == expected
            assert len(written) == 3 * -(-len(given_specs) // 2)
            written.clear()

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(specs, min_size=1, max_size=5))
    def test_are_the_jobs_that_are_returned(self, written: list[str], given_specs: list[JobSpec]) -> None:
        with transaction.atomic():
            jobs = add_jobs(given_specs)
            assert jobs == [as_job(stored(job)) for job in jobs]
            assert [job.id for job in jobs] == sorted({job.id for job in jobs})
            transaction.set_rollback(True)
        assert written

    def test_of_many_pieces_are_in_order(self, written: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("django_graphile_worker.api.add.STREAMED_SPECS", 5)
        monkeypatch.setattr("django_graphile_worker.api.streams.STREAMED_SPECS", 5)
        assert [job.payload["n"] for job in add_jobs(JobSpec("a", {"n": n}) for n in range(13))] == list(range(13))
        assert add_jobs((JobSpec("a", {"n": n}) for n in range(13, 29)), returning=False) == 16
        assert numbers() == list(range(29))
        assert len(written) == (3 + 3 + 2) + (3 + 3 + 3 + 1)

    def test_may_have_many_names(self, written: list[str]) -> None:
        names = [f"name {number}" for number in range(300)]
        jobs = add_jobs([JobSpec(name, queue_name=name) for name in names])
        assert [row[:2] for row in execute(ROWS)] == [(name, name) for name in names]
        assert [job.queue_name for job in jobs] == names
        assert written


@pytest.mark.django_db
class TestJobsThatAreInserted:
    """COPY is not for all jobs, and not for all connections."""

    def test_are_few(self, written: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(copying, "COPIED_SPECS", 3)
        add_jobs([JobSpec("a")] * 2)
        add_jobs([JobSpec("a")] * 2, returning=False)
        assert written == []
        add_jobs([JobSpec("a")] * 3)
        assert len(written) == 2

    @pytest.mark.parametrize(
        "options",
        [{"job_key": "k"}, {"run_at": timedelta(0)}, {"run_at": datetime(2030, 1, 1, tzinfo=UTC)}, {"expires": 9}],
    )
    def test_have_a_key_or_a_time(self, written: list[str], options: dict[str, Any]) -> None:
        given_specs = [JobSpec("a", {"n": 1}), JobSpec("a", {"n": 2}, **options)]
        add_jobs(given_specs)
        add_jobs(given_specs, returning=False)
        assert written == []
        assert len(numbers()) == (3 if "job_key" in options else 4)

    def test_have_the_time_of_a_test(self, written: list[str]) -> None:
        moment = datetime(2030, 1, 1, tzinfo=UTC)
        with clock(moment):
            (job,) = add_jobs([JobSpec("a")])
            add_jobs([JobSpec("a")], returning=False)
        assert [job.run_at, *(job.run_at for job in models.Job.objects.all())] == [moment] * 3
        assert written == []

    def test_are_seen_by_execute_wrappers_and_the_log_of_statements(
        self, written: list[str], django_assert_num_queries: Any
    ) -> None:
        seen: list[str] = []

        def wrapper(execute: Any, sql: str, *rest: Any) -> Any:
            seen.append(sql)
            return execute(sql, *rest)

        with connection.execute_wrapper(wrapper):
            add_jobs([JobSpec("a")])
        assert sum("_private_insert_jobs" in sql for sql in seen) == 1
        with django_assert_num_queries(3):  # a savepoint around the statement
            add_jobs([JobSpec("a")], returning=False)
        assert written == []

    @pytest.mark.parametrize("returning", [True, False])
    def test_are_in_a_pipeline_of_the_driver(self, written: list[str], returning: bool) -> None:
        with connection.connection.pipeline():
            add_jobs([JobSpec("a", {"n": 1}), JobSpec("a", {"n": 2})], returning=returning)
        assert numbers() == [1, 2]
        assert written == []

    @pytest.mark.parametrize("returning", [True, False])
    def test_are_in_a_session_with_a_limit_for_the_time_of_a_statement(
        self, written: list[str], returning: bool
    ) -> None:
        execute("set local statement_timeout = '20s'")
        add_jobs([JobSpec("a")], returning=returning)
        assert written == []

    def test_have_limits_whose_keys_the_project_computes(self, written: list[str]) -> None:
        with tasks.isolated():
            task("limited", limit=Limit("n:{n}", concurrency=1))(lambda payload: None)
            add_jobs([JobSpec("limited", {"n": 1})] * 2)
            assert written == []
            add_jobs([JobSpec("a", {"n": 1})] * 2)
            assert len(written) == 1

    def test_are_of_a_subclass_of_specs(self, written: list[str]) -> None:
        """Its payload may be a property."""

        class Spec(JobSpec):
            pass

        add_jobs([JobSpec("a", {"n": 1}), Spec(identifier="a", payload={"n": 2})])
        assert numbers() == [1, 2]
        assert written == []

    @pytest.mark.parametrize("kind", ["adder", "keyed-adder"])
    def test_are_of_a_role_that_may_only_add(self, written: list[str], kind: str) -> None:
        script = operate("grants", "adding_role", "--kind", kind).out
        execute("create role adding_role")
        execute(script)
        execute("set local role adding_role")
        jobs = add_jobs([JobSpec("a", {"n": 1}), JobSpec("b", {"n": 2}, queue_name="q")])
        assert add_jobs([JobSpec("a", {"n": 3})], returning=False) == 1
        execute("reset role")
        assert jobs == [as_job(stored(job)) for job in jobs]
        assert numbers() == [1, 2, 3]
        assert written == []

    @pytest.mark.parametrize(
        ("missing", "is_copied"),
        [
            ("select 1", True),
            ("revoke all on sequence {sequence} from copying_role", False),
            ("alter role copying_role nobypassrls", False),
        ],
    )
    def test_are_of_a_role_without_the_rights_to_copy(self, written: list[str], missing: str, is_copied: bool) -> None:
        execute("create role copying_role bypassrls")
        execute("grant usage on schema {schema} to copying_role")
        execute("grant all on all tables in schema {schema} to copying_role")
        execute("grant all on all sequences in schema {schema} to copying_role")
        for table in ("_private_jobs", "_private_tasks", "_private_job_queues"):
            execute(f"create policy copying on {{schema}}.{table} to copying_role using (true)")
        ((sequence,),) = execute("select pg_get_serial_sequence('{schema}._private_jobs', 'id')")
        execute(missing.replace("{sequence}", sequence))
        execute("set local role copying_role")
        jobs = add_jobs([JobSpec("a", {"n": 1}), JobSpec("a", {"n": 2})])
        assert add_jobs([JobSpec("a", {"n": 3})], returning=False) == 1
        execute("reset role")
        assert jobs == [as_job(stored(job)) for job in jobs[:2]]
        assert numbers() == [1, 2, 3]
        assert bool(written) == is_copied


@pytest.mark.django_db(transaction=True)
class TestCodeOfTheProject:
    @pytest.mark.parametrize("way", ["cursor", "callproc", "driver", "stream", "is_usable"])
    def test_in_a_payload_uses_the_connection_as_usual(self, written: list[str], way: str) -> None:
        def used() -> str:
            states.append(is_copying())
            if way == "driver":
                return str(connection.connection.execute("select 1").fetchone()[0])
            if way == "is_usable":
                return str(int(connection.is_usable()))
            with connection.cursor() as cursor:
                if way == "callproc":
                    cursor.callproc("abs", [-1])
                elif way == "stream":
                    return str(next(iter(cursor.cursor.stream("select 1")))[0])
                else:
                    cursor.execute(f"update {models.Job._meta.db_table} set priority = 1 where payload ->> 'n' = '0'")
                    return str(cursor.rowcount)
                return str(cursor.fetchone()[0])

        states: list[bool] = []
        given_specs = [JobSpec("a", {"n": lazy(used, str)() if number == 4 else number}) for number in range(9)]
        assert add_jobs(given_specs, returning=False) == 9
        assert numbers() == [0, 1, 2, 3, "1", 5, 6, 7, 8]
        assert states == [False]
        assert len(written) == 5

    @pytest.mark.parametrize("returning", [True, False])
    def test_in_payloads_is_left_to_statements_if_there_is_much_of_it(
        self, written: list[str], monkeypatch: pytest.MonkeyPatch, returning: bool
    ) -> None:
        monkeypatch.setattr(copying, "MOST_COPIES", 1)
        monkeypatch.setattr("django_graphile_worker.api.add.STREAMED_SPECS", 4)
        monkeypatch.setattr("django_graphile_worker.api.streams.STREAMED_SPECS", 4)
        values = [0, *(lazy(str, str)(number) for number in range(1, 10))]
        add_jobs([JobSpec("a", {"n": value}) for value in values], returning=returning)
        assert numbers() == [0, *map(str, range(1, 10))]
        assert len(written) == 2

    def test_in_the_first_payload_is_left_to_statements(self, written: list[str]) -> None:
        add_jobs([JobSpec("a", {"n": lazy(str, str)(number)}) for number in range(3)])
        assert numbers() == ["0", "1", "2"]
        assert written == []

    def test_may_be_methods_of_a_subclass(self, written: list[str]) -> None:
        class Items(dict[str, Any]):
            def items(self) -> Any:
                states.append(is_copying())
                return connection.connection.execute("select 'n', 1").fetchall()

        class Zone(tzinfo):
            def utcoffset(self, moment: datetime | None) -> timedelta:
                states.append(is_copying())
                connection.connection.execute("select 1")
                return timedelta(0)

            dst = utcoffset

            def tzname(self, moment: datetime | None) -> str:
                return "own"

        states: list[bool] = []
        given_specs = [JobSpec("a", {"n": 0})] * 4
        add_jobs([*given_specs, JobSpec("a", Items(n=0)), JobSpec("a", {"n": datetime(2030, 1, 1, tzinfo=Zone())})])
        assert numbers() == [0, 0, 0, 0, 1, "2030-01-01T00:00:00Z"]
        assert len(written) == 3
        assert states
        assert not any(states)

    def test_is_not_that_of_usual_types(self, written: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("django_graphile_worker.api.streams.STREAMED_SPECS", 2)
        values = [
            datetime(2030, 1, 1, tzinfo=UTC),
            UUID(int=1),
            Decimal("1.5"),
            timedelta(1),
            date(2030, 1, 1),
            time(1),
        ]
        assert add_jobs([JobSpec("a", {"n": value}) for value in values], returning=False) == 6
        assert numbers() == json.loads(json.dumps(values, cls=DjangoJSONEncoder))
        assert len(written) == 3

    def test_that_handles_the_record_of_an_unknown_task_uses_the_connection(
        self, written: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        states: list[bool] = []
        monkeypatch.setattr(entries, "logged_names", set[str]())
        monkeypatch.setattr(entries.logger, "warning", lambda *arguments, **extra: states.append(is_copying()))
        add_jobs([JobSpec(f"unknown {number}", {"n": number}) for number in range(5)])
        assert states == [False] * 5
        assert numbers() == list(range(5))

    def test_that_yields_specs_runs_while_nothing_is_copied(
        self, written: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("django_graphile_worker.api.streams.STREAMED_SPECS", 4)
        states: list[bool] = []

        def given_specs() -> Iterator[JobSpec]:
            for number in range(10):
                states.append(is_copying())
                assert len(list(models.Job.objects.iterator(chunk_size=1))) == number - number % 4
                yield JobSpec("a", {"n": number})

        assert add_jobs(given_specs(), returning=False) == 10
        assert not any(states)
        assert numbers() == list(range(10))
        assert written

    @pytest.mark.parametrize("place", [0, 3, 6])
    @pytest.mark.parametrize("returning", [True, False])
    def test_with_a_mistake_adds_nothing_and_names_its_place(
        self, written: list[str], place: int, returning: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        given_specs = [JobSpec("a", {1} if number == place else {"n": number}) for number in range(7)]
        with transaction.atomic():
            with pytest.raises(PayloadError, match=rf"^specs\[{place}\]: payload: "):
                add_jobs(given_specs, returning=returning)
            add_job("a", {"n": "the transaction goes on"})
        assert numbers() == ["the transaction goes on"]
        assert bool(written) == (place > 1)
        assert [record for record in caplog.records if record.name == "psycopg"] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("returning", [True, False])
def test_an_error_of_the_server__adds_nothing_and_is_djangos(written: list[str], returning: bool) -> None:
    given_specs = [JobSpec("a", {"password": "hunter2"}) for number in range(12)]
    object.__setattr__(given_specs[7], "priority", 40_000)
    with pytest.raises(InvalidJobError, match=r'^value "40000" is out of range for type smallint$') as refused:
        add_jobs(given_specs, returning=returning)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))
    assert written
    assert not models.Job.objects.exists()
    add_jobs(given_specs[:7], returning=returning)
    assert models.Job.objects.count() == 7


@pytest.mark.parametrize("text", [copy_jobs.CAN_COPY, copy_jobs.COPIED_NUMBERS])
def test_statements__name_the_schema_of_each_function(text: str) -> None:
    calls = re.findall(r"([\w.\"]*)\(", statement(text, "own"))
    assert [call for call in calls if call and "." not in call] == []
    assert calls


@pytest.mark.django_db
class TestATableThatTheSiteHasChanged:
    """COPY knows no rules, and triggers may change what is inserted."""

    def test_may_have_a_trigger_that_changes_ids(self, written: list[str]) -> None:
        execute(
            "create function {schema}.move() returns trigger language plpgsql as "
            "$$ begin new.id = new.id + 1000000; return new; end $$"
        )
        execute(
            "create trigger move before insert on {schema}._private_jobs for each row execute function {schema}.move()"
        )
        jobs = add_jobs([JobSpec("a"), JobSpec("a")])
        assert jobs == [as_job(stored(job)) for job in jobs]
        assert written == []

    def test_may_have_a_trigger_that_keeps_rows_away(self, written: list[str]) -> None:
        execute("create function {schema}.none() returns trigger language plpgsql as $$ begin return null; end $$")
        execute(
            "create trigger none before insert on {schema}._private_jobs for each row execute function {schema}.none()"
        )
        with pytest.raises(SchemaError, match="a trigger on the table of jobs"):
            add_jobs([JobSpec("a")] * 3)
        assert written == []

    def test_may_have_a_rule(self, written: list[str]) -> None:
        execute("create table {schema}.audit (n bigint)")
        execute(
            "create rule audit as on insert to {schema}._private_jobs do also insert into {schema}.audit values (1)"
        )
        add_jobs([JobSpec("a")] * 3, returning=False)
        assert execute("select count(*) from {schema}.audit") == [(3,)]
        assert written == []


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost__is_an_error_of_django(written: list[str], owner: WorkerSql) -> None:
    def lost() -> str:
        owner.query("select pg_terminate_backend(%s, 10000)", connection.connection.info.backend_pid)
        return "lost"

    given_specs = [JobSpec("a", {"n": lazy(lost, str)() if number == 4 else number}) for number in range(9)]
    with pytest.raises(DatabaseError):
        add_jobs(given_specs, returning=False)
    connection.close()
    assert written
    assert numbers() == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
class TestNames:
    def test_that_were_cleaned_up_are_put_back(self, written: list[str], level: str, owner: WorkerSql) -> None:
        add_job("a", queue_name="q")
        execute("delete from {schema}._private_jobs")
        with transaction.atomic():
            execute(f"set transaction isolation level {level}")
            execute("select 1")
            owner.query("delete from {schema}._private_tasks")
            owner.query("delete from {schema}._private_job_queues")
            (job,) = add_jobs([JobSpec("a", queue_name="q")])
        assert as_job(stored(job)) == job
        assert written

    def test_are_not_cleaned_up_before_the_commit(self, written: list[str], level: str, owner: WorkerSql) -> None:
        with transaction.atomic():
            execute(f"set transaction isolation level {level}")
            add_jobs([JobSpec("a", queue_name="q")])
            held = owner.query(
                "select mode from pg_locks where relation = '{schema}._private_names_lock'::regclass and granted"
            )
        assert "AccessShareLock" in [lock["mode"] for lock in held]
        assert written


@pytest.mark.django_db(transaction=True)
class TestNotifications:
    def test_tell_how_many_jobs_there_are(self, written: list[str], listener: WorkerSql) -> None:
        add_jobs([JobSpec("a")] * 3)
        add_jobs([JobSpec("a", priority=1)] * 4, returning=False)
        assert listener.notified_counts() == [3, 4]
        assert written

    def test_are_off_if_the_project_says_so(self, written: list[str], listener: WorkerSql, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "NOTIFY": False}
        add_jobs([JobSpec("a")] * 3)
        assert listener.notified_counts() == []
        assert written
