"""What a role needs, and what it cannot do with it."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction

from django_graphile_worker import JobSpec, add_job, add_jobs, models
from django_graphile_worker.sql import jobs, recovery
from django_graphile_worker.sql.install import catalog, privileges
from tests.support.worker_sql import WorkerSql

pytestmark = pytest.mark.django_db(transaction=True)

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "roles.md"


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


def readable_relations(owner: WorkerSql, worker: WorkerSql) -> set[str]:
    """The tables and views of the schema from which a role may select."""
    rows = owner.query(
        "select relname from pg_class where relnamespace = %s::regnamespace and relkind in ('r', 'v', 'm', 'p')",
        f'"{owner.schema}"',
    )
    names = [row["relname"] for row in rows]
    assert "_private_jobs" in names
    return {name for name in names if not is_denied(worker, f'select from {{schema}}."{name}"')}


def is_denied(worker: WorkerSql, text: str) -> bool:
    try:
        with worker.connection.transaction():
            worker.query(text)
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


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

    def test_reads_nothing(self, owner: WorkerSql, as_role: WorkerSql) -> None:
        owner.add_job(payload={"secret": 1}, job_key="key")
        readable = readable_relations(owner, as_role)
        assert readable == {"migrations"}
        with as_role.connection.transaction():
            as_role.add_job(payload={"own": 1})
            assert denied(as_role, "select payload from {schema}._private_jobs")

    def test_cannot_use_keys_through_any_function(self, owner: WorkerSql, as_role: WorkerSql) -> None:
        spec = "array[row('task', null, null, null, null, 'key', null, null)]::{schema}.job_spec[]"
        for call in (
            f"add_jobs({spec})",
            f"_private_adder_add_jobs({spec})",
            f"_private_keyed_adder_add_jobs({spec}, false)",
            "_private_keyed_adder_add_job('task', null, null, null, null, 'key', null, null, 'replace')",
            "_private_keyed_adder_add_job('task', null, null, null, null, null, null, null, 'replace')",
            "_private_add_unique_jobs('[]', false, null)",
            "_private_keyed_adder_add_unique_jobs('[]', false, null)",
        ):
            assert denied(as_role, f"select {{schema}}.{call}"), call
        assert owner.jobs() == []

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

    def test_cannot_keep_others_from_adding(self, owner: WorkerSql, as_role: WorkerSql) -> None:
        for table in ("_private_jobs", "_private_tasks", "_private_job_queues"):
            for mode in ("row share", "share", "share row exclusive", "access exclusive"):
                assert is_denied(as_role, f"lock table {{schema}}.{table} in {mode} mode nowait")

    def test_adds_through_the_python_api(self, role: str, worker_schema: str) -> None:
        with transaction.atomic():
            connection.cursor().execute(f"set local role {role}")
            job = add_job("new-task", {"n": 1}, queue_name="new-queue")
            assert [job.payload for job in add_jobs([JobSpec("a", {"n": 2}), JobSpec("b")])] == [{"n": 2}, {}]
        assert models.Job.objects.get(pk=job.id).payload == {"n": 1}


class TestAnEnqueueOnlyRoleWithKeys:
    @pytest.fixture(autouse=True)
    def recipe(self, owner: WorkerSql, role: str) -> None:
        follow(owner, role, "keyed-adder")

    @pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
    def test_adds_and_replaces_jobs_by_their_keys(self, owner: WorkerSql, as_role: WorkerSql, level: str) -> None:
        owner.add_job(job_key="waiting", payload=["secret"])
        owner.lock(owner.add_job(job_key="running")["id"])

        with as_role.connection.transaction():
            as_role.query(f"set transaction isolation level {level}")
            assert as_role.add_job(job_key="waiting", payload=[2])["revision"] == 1
            with as_role.connection.transaction():
                assert as_role.add_job(job_key="running")["revision"] == 0
            assert as_role.add_job(job_key="waiting", job_key_mode="unsafe_dedupe")["revision"] == 2
            rows = as_role.add_jobs({"job_key": "new"}, {}, {"job_key": "running"})
            assert [row["key"] for row in rows] == ["new", None, "running"]
        stored = owner.value("select payload from {schema}._private_jobs where key = 'waiting'")
        assert stored == ["secret", 2]

    def test_adds_unique_jobs__and_learns_nothing_of_the_job_that_exists(self, role: str) -> None:
        secret = add_job("report", {"secret": 1}, unique="k")
        with transaction.atomic():
            connection.cursor().execute(f"set local role {role}")
            assert not add_job("report", {"n": 1}, unique=True).existed
            found = add_job("report", {"own": 1}, unique="k")
        assert (found.id, found.existed, found.payload) == (secret.id, True, {"own": 1})

    def test_learns_nothing_of_the_job_that_it_replaces(self, owner: WorkerSql, as_role: WorkerSql) -> None:
        secret = {"payload": ["secret"], "flags": ["secret"]}
        job = owner.add_job(job_key="key", **secret)
        owner.query("update {schema}._private_jobs set last_error = 'secret'")
        owner.lock(job["id"], by="secret")

        found = as_role.add_job(job_key="key", payload=[1], job_key_mode="unsafe_dedupe")
        assert "secret" not in json.dumps(found, default=str)
        assert (found["id"], found["payload"], found["locked_at"]) == (job["id"], [1], None)
        owner.call("force_unlock_workers", worker_ids=["secret"])
        for row in (as_role.add_job(job_key="key", payload=[2]), *as_role.add_jobs({"job_key": "key", "payload": [3]})):
            assert "secret" not in json.dumps(row, default=str)
        assert owner.job(job["id"])["payload"] == ["secret", 2, 3]

    def test_reads_nothing_and_unlocks_nothing(self, owner: WorkerSql, as_role: WorkerSql) -> None:
        unkeyed = owner.lock(owner.add_job()["id"])
        owner.add_job(job_key="key")

        assert readable_relations(owner, as_role) == {"migrations"}
        assert denied(as_role, "select {schema}.force_unlock_workers('{worker}')")
        assert denied(as_role, "select {schema}.remove_job('key')")
        assert denied(as_role, "select * from {schema}.reschedule_jobs(%s)", [unkeyed["id"]])

    def test_keeps_the_rights_of_another_kind(self, owner: WorkerSql, role: str, as_role: WorkerSql) -> None:
        follow(owner, role, "viewer")
        follow(owner, role, "adder")
        owner.add_job()
        assert len(as_role.jobs()) == 1


class TestARoleWithRightsOfItsOwn:
    """A role that was set up manually for graphile-worker, before this package's tables existed."""

    def test_cancels_a_running_job_with_them(self, owner: WorkerSql, role: str, as_role: WorkerSql) -> None:
        owner.query(f"grant usage on schema {{schema}} to {role}")
        owner.query(f"grant select, insert, update, delete on all tables in schema {{schema}} to {role}")
        owner.query(f"grant usage on all sequences in schema {{schema}} to {role}")
        for table in ("_private_jobs", "_private_tasks", "_private_job_queues"):
            owner.query(f"create policy {role}_all on {{schema}}.{table} to {role} using (true)")
        owner.lock(owner.add_job(job_key="key")["id"], by="holder")

        assert as_role.add_job(job_key="key")["revision"] == 0
        marker = owner.query("select locked_by, kind from {schema}._private_cancellations")
        assert marker == [{"locked_by": "holder", "kind": "replaced"}]


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
            catalog.check_usable(cursor, schema=owner.schema)

    def test_tends_the_history_and_writes_into_days_that_it_made(
        self, owner: WorkerSql, role: str, as_role: WorkerSql
    ) -> None:
        assert denied(as_role, "select {schema}._private_make_history_partitions(0)")
        follow(owner, role, "worker")
        as_role.query("select {schema}._private_make_history_partitions(0)")
        as_role.query(
            "insert into {schema}._private_history (ended_at, added_at, run_at, job_id, attempt, outcome,"
            " task_identifier) values (now(), now(), now(), 1, 1, 1, 'task')"
        )
        as_role.query("select {schema}._private_index_history()")
        tables = "select tableoid::regclass::text as name from {schema}._private_history"
        assert not as_role.query(tables)[0]["name"].endswith("default")
        while as_role.query("select {schema}._private_drop_history(now() + interval '2 days', 10) as more")[0]["more"]:
            pass
        assert as_role.query(tables) == []

    def test_granted_before_there_were_results__ends_and_recovers_jobs(
        self, owner: WorkerSql, role: str, as_role: WorkerSql
    ) -> None:
        follow(owner, role, "worker")
        tables = "{schema}._private_results, {schema}._private_waiters, {schema}._private_history"
        owner.query(f"revoke all on {tables} from {role}")
        job_id = owner.add_job()["id"]
        owner.lock(owner.add_job()["id"], by="django-worker-dead/1")
        with as_role.connection.cursor() as cursor:
            assert [job.id for job in jobs.complete_jobs(cursor, [job_id], schema=owner.schema)] == [job_id]
            assert len(recovery.recover_claims(cursor, ["django-worker-dead"], schema=owner.schema).job_ids) == 1


class TestAViewer:
    def test_sees_everything_and_changes_nothing(self, owner: WorkerSql, role: str, as_role: WorkerSql) -> None:
        follow(owner, role, "viewer")
        job = owner.add_job(job_key="key", queue_name="queue")

        assert as_role.jobs() == owner.jobs() == [job]
        with as_role.connection.cursor() as cursor:
            catalog.check_usable(cursor, schema=owner.schema)
        assert denied(as_role, "select {schema}.add_job('task')")
        assert denied(as_role, "select {schema}.remove_job('key')")
        assert denied(as_role, "select {schema}.complete_jobs(%s)", [job["id"]])
        assert denied(as_role, "delete from {schema}._private_workers")
        assert owner.jobs() == [job]


class TestTheScripts:
    @pytest.mark.parametrize("name", ['Odd "one"', "it's", "dollar$$sign", "grants$grants__$ $$", "r" * 63, "ü" * 31])
    @pytest.mark.parametrize("kind", privileges.GRANT_FILES)
    def test_take_roles_of_any_name(self, owner: WorkerSql, name: str, kind: str) -> None:
        # Roles belong to the server, which other processes of the tests use, too.
        own = str(owner.connection.info.backend_pid)
        name = own + (name if len(name) < 30 else name[len(own) :])
        quoted = '"' + name.replace('"', '""') + '"'
        owner.connection.execute(f"create role {quoted}".encode())
        try:
            for _ in range(2):
                owner.connection.execute(privileges.grants_script(kind, name, schema=owner.schema).encode())
            policies = owner.query("select distinct roles::text[] as roles from pg_policies where roles <> '{public}'")
            assert [row["roles"] for row in policies] == ([] if "adder" in kind else [[name]])
        finally:
            owner.connection.execute(f"drop owned by {quoted}".encode())
            owner.connection.execute(f"drop role {quoted}".encode())

    @pytest.mark.parametrize("kind", privileges.GRANT_FILES)
    def test_equal_the_guide(self, kind: str) -> None:
        recipes = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
        text = privileges.grants_script(kind, "web_app", schema="graphile_worker")
        if kind == "keyed-adder":
            assert text == f"{recipes[0]}\n{recipes[1]}"
        else:
            assert text in recipes
