"""What a role needs, and what it cannot do with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.sql import grants, installation, visibility
from tests.worker_sql import WorkerSql

pytestmark = pytest.mark.django_db(transaction=True)

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "roles.md"


@pytest.fixture
def owner(committing_worker: Callable[..., WorkerSql]) -> WorkerSql:
    return committing_worker()


@pytest.fixture
def role(owner: WorkerSql) -> Iterator[str]:
    """A role that may log in and has no rights; dropped at the end with all it was given."""
    name = f"gw_role_{owner.connection.info.backend_pid}"
    owner.query(f"create role {name} login")
    yield name
    owner.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", name)
    for policy in owner.query("select tablename, policyname from pg_policies where schemaname = %s", owner.schema):
        owner.query(f'drop policy "{policy["policyname"]}" on {{schema}}."{policy["tablename"]}"')
    owner.query(f"drop owned by {name}")
    owner.query(f"drop role {name}")


@pytest.fixture
def as_role(owner: WorkerSql, role: str, raw_connection: Callable[..., psycopg.Connection[Any]]) -> WorkerSql:
    connection = raw_connection()
    connection.execute(f"set role {role}".encode())
    return WorkerSql(connection, owner.schema)


def follow(owner: WorkerSql, role: str, kind: str) -> None:
    """Run what ``manage.py graphile_worker grants`` prints, twice: it may be run any number of times."""
    output = StringIO()
    call_command("graphile_worker", "grants", role, kind=kind, stdout=output)
    for _ in range(2):
        owner.connection.execute(output.getvalue().encode())


def denied(worker: WorkerSql, text: str, *parameters: Any) -> bool:
    with pytest.raises(psycopg.Error) as caught:
        worker.query(text, *parameters)
    return caught.value.sqlstate == "42501"


def test_a_role_without_rights_can_do_nothing(as_role: WorkerSql) -> None:
    assert denied(as_role, "select {schema}.add_job('task')")


class TestAnEnqueueOnlyRole:
    @pytest.fixture(autouse=True)
    def recipe(self, owner: WorkerSql, role: str) -> None:
        follow(owner, role, "adder")

    @pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
    def test_adds_jobs(self, owner: WorkerSql, as_role: WorkerSql, level: str) -> None:
        with as_role.connection.transaction():
            as_role.query(f"set transaction isolation level {level}")
            job = as_role.add_job("new-task", queue_name="new-queue", payload={"n": 1}, flags=["a"])
            with as_role.connection.transaction():
                batch = as_role.add_jobs({}, {"queue_name": "other-queue"})

        assert job["payload"] == {"n": 1}
        assert [row["id"] for row in owner.jobs()] == [job["id"], *(row["id"] for row in batch)]

    def test_sees_no_job_of_another_transaction(self, owner: WorkerSql, as_role: WorkerSql) -> None:
        owner.add_job(payload={"secret": 1}, job_key="key")
        as_role.add_job(payload={"own": 1})

        assert as_role.query("select payload from {schema}._private_jobs") == []
        assert denied(as_role, "select * from {schema}.jobs")
        assert denied(as_role, "select * from {schema}._private_known_crontabs")

    def test_changes_and_removes_nothing(self, owner: WorkerSql, as_role: WorkerSql) -> None:
        job = owner.add_job(job_key="key")
        ids = [job["id"]]

        assert denied(as_role, "select {schema}.add_job('task', job_key := 'key')")
        assert denied(as_role, "select {schema}.remove_job('key')")
        assert denied(as_role, "select {schema}.complete_jobs(%s)", ids)
        assert denied(as_role, "select {schema}.permanently_fail_jobs(%s)", ids)
        assert denied(as_role, "select {schema}.reschedule_jobs(%s)", ids)
        assert denied(as_role, "select {schema}.force_unlock_workers('{}')")
        assert denied(as_role, "update {schema}._private_jobs set priority = 1")
        assert denied(as_role, "delete from {schema}._private_tasks")
        assert denied(as_role, "update {schema}._private_job_queues set locked_at = null")
        assert denied(as_role, "truncate {schema}._private_jobs")
        assert denied(as_role, "create table {schema}.mine (id integer)")
        assert owner.jobs() == [job]

    def test_cannot_add_a_job_that_seems_to_run(self, as_role: WorkerSql) -> None:
        assert denied(
            as_role, "insert into {schema}._private_jobs (task_id, locked_at, locked_by) values (1, now(), 'me')"
        )
        assert denied(as_role, "insert into {schema}._private_jobs (task_id, created_at) values (1, '2000-01-01')")


class TestAnEnqueueOnlyRoleWithKeys:
    @pytest.fixture(autouse=True)
    def recipe(self, owner: WorkerSql, role: str) -> None:
        follow(owner, role, "keyed-adder")

    def test_adds_and_replaces_jobs_by_their_keys(self, owner: WorkerSql, as_role: WorkerSql) -> None:
        owner.add_job(job_key="waiting", payload=[1])
        owner.lock(owner.add_job(job_key="running")["id"])

        assert as_role.add_job(job_key="waiting", payload=[2])["payload"] == [1, 2]
        assert as_role.add_job(job_key="running")["revision"] == 0
        assert as_role.add_job(job_key="waiting", job_key_mode="unsafe_dedupe")["revision"] == 2
        keys = [row["key"] for row in as_role.add_jobs({"job_key": "new"}, {}, {"job_key": "running"})]
        assert keys == ["new", None, "running"]

    def test_sees_no_job_without_a_key_and_unlocks_none(self, owner: WorkerSql, as_role: WorkerSql) -> None:
        unkeyed = owner.lock(owner.add_job()["id"])
        owner.add_job(job_key="key")

        assert [row["key"] for row in as_role.query("select key from {schema}._private_jobs")] == ["key"]
        assert denied(as_role, "select {schema}.force_unlock_workers('{worker}')")
        assert denied(as_role, "select {schema}.remove_job('key')")
        assert as_role.query("select * from {schema}.reschedule_jobs(%s)", [unkeyed["id"]]) == []


class TestAWorkerRole:
    def test_does_all_that_workers_do(self, owner: WorkerSql, role: str, as_role: WorkerSql) -> None:
        follow(owner, role, "worker")
        ids = [owner.add_job(job_key=key)["id"] for key in "ab"]
        ids.append(as_role.add_job(job_key="c")["id"])
        ids += [row["id"] for row in as_role.add_jobs({"job_key": "d"}, {"queue_name": "queue"})]

        as_role.lock(ids[0])
        as_role.call("force_unlock_workers", worker_ids=["worker"])
        as_role.call("reschedule_jobs", job_ids=ids, priority=1)
        as_role.call("remove_job", job_key="a")
        as_role.call("complete_jobs", job_ids=ids)

        assert owner.jobs() == []
        with as_role.connection.cursor() as cursor:
            installation.check_usable(cursor, schema=owner.schema)


class TestAViewer:
    def test_sees_everything_and_changes_nothing(self, owner: WorkerSql, role: str, as_role: WorkerSql) -> None:
        follow(owner, role, "viewer")
        job = owner.add_job(job_key="key", queue_name="queue")

        assert as_role.jobs() == owner.jobs() == [job]
        with as_role.connection.cursor() as cursor:
            installation.check_usable(cursor, schema=owner.schema)
        assert denied(as_role, "select {schema}.add_job('task')")
        assert denied(as_role, "select {schema}.remove_job('key')")
        assert denied(as_role, "select {schema}.complete_jobs(%s)", [job["id"]])
        assert denied(as_role, "delete from {schema}._private_workers")
        assert owner.jobs() == [job]


class TestTheScripts:
    @pytest.mark.parametrize("name", ['Odd "one"', "it's", "dollar$$sign", "grants$grants__$ $$", "r" * 63, "ü" * 31])
    @pytest.mark.parametrize("kind", grants.FILES)
    def test_take_roles_of_any_name(self, owner: WorkerSql, name: str, kind: str) -> None:
        quoted = '"' + name.replace('"', '""') + '"'
        owner.connection.execute(f"create role {quoted}".encode())
        try:
            for _ in range(2):
                owner.connection.execute(grants.script(kind, name, schema=owner.schema).encode())
            policies = owner.query("select distinct roles::text[] as roles from pg_policies")
            assert [row["roles"] for row in policies] == [[name]]
        finally:
            owner.connection.execute(f"drop owned by {quoted}".encode())
            owner.connection.execute(f"drop role {quoted}".encode())

    @pytest.mark.parametrize("kind", grants.FILES)
    def test_are_those_of_the_guide(self, kind: str) -> None:
        recipes = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
        text = grants.script(kind, "web_app", schema="graphile_worker")
        if kind == "keyed-adder":
            assert text == f"{recipes[0]}\n{recipes[1]}"
        else:
            assert text in recipes


class TestARoleThatRowLevelSecurityBlinds:
    @pytest.fixture(autouse=True)
    def rights(self, owner: WorkerSql, role: str) -> None:
        owner.query(f"grant usage on schema {{schema}} to {role}")
        owner.query(f"grant all on all tables in schema {{schema}} to {role}")

    def test_is_told_so(self, owner: WorkerSql, role: str, as_role: WorkerSql) -> None:
        owner.add_job()
        assert as_role.jobs() == []

        with as_role.connection.cursor() as cursor:
            assert visibility.hidden_tables(cursor, schema=owner.schema) == (
                role,
                ("_private_job_queues", "_private_jobs", "_private_tasks"),
            )
            with pytest.raises(SchemaError, match=f"got '{role}': row-level security hides"):
                installation.check_usable(cursor, schema=owner.schema)

    def test_is_told_so__when_the_policies_are_for_others(
        self, owner: WorkerSql, role: str, as_role: WorkerSql
    ) -> None:
        other = f"{role}_other"
        owner.query(f"create role {other}")
        try:
            for table in ("_private_jobs", "_private_tasks", "_private_job_queues"):
                owner.query(f"create policy others on {{schema}}.{table} to {other} using (true)")
                owner.query(f"create policy writers on {{schema}}.{table} for insert to {role} with check (true)")

            with as_role.connection.cursor() as cursor:
                assert len(visibility.hidden_tables(cursor, schema=owner.schema)[1]) == 3
                owner.query(f"grant {other} to {role}")
                assert visibility.hidden_tables(cursor, schema=owner.schema)[1] == ()
        finally:
            owner.query(f"drop owned by {other}")
            owner.query(f"drop role {other}")

    def test_owners_see_everything(self, owner: WorkerSql) -> None:
        with owner.connection.cursor() as cursor:
            assert visibility.hidden_tables(cursor, schema=owner.schema)[1] == ()
            installation.check_usable(cursor, schema=owner.schema)
