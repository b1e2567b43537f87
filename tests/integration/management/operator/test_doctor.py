"""``doctor``: real damage of real databases, what it says about it, and what ``--fix`` changes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings
from psycopg.conninfo import make_conninfo
from pytest_django import DjangoDbBlocker

from django_graphile_worker import __version__
from django_graphile_worker.management.commands.graphile_worker import Command
from django_graphile_worker.management.operator import examinations
from django_graphile_worker.sql.inspection import diagnosis, overview
from testproject import databases
from tests.migration.rust import add_retirements
from tests.support.factories import make_job, minutes_ago
from tests.support.operating import execute, make_worker, operate
from tests.support.pgbouncer import BINARY, REASON, pgbouncer
from tests.support.worker_sql import WorkerSql

ALIAS = "doctored"
# The servers of several versions run without autovacuum.
OF_THE_SERVER = {"autovacuum": ["Autovacuum is off in the whole server: tables only grow."]}
NO_WORKER = {"workers": ["No worker is alive."]}


class Report(dict[str, Any]):
    """The JSON of ``doctor``."""

    def texts(self, *levels: str) -> dict[str, list[str]]:
        """Return the texts of the findings of these levels, by their names."""
        found: dict[str, list[str]] = {}
        for each in self["findings"]:
            if each["level"] in levels:
                found.setdefault(each["name"], []).append(each["text"])
        return found

    @property
    def problems(self) -> dict[str, list[str]]:
        return self.texts("warning", "error")

    def remedies(self, name: str) -> str:
        return " ".join(each["remedy"] for each in self["findings"] if each["name"] == name)


def doctor(*arguments: str, database: str = ALIAS) -> Report:
    """Call the verb. It writes its report, and then exits with 1 if something is wrong."""
    out, is_well = StringIO(), True
    command = Command(stdout=out)
    parser = command.create_parser("manage.py", "graphile_worker")
    try:
        command.execute(**vars(parser.parse_args(["doctor", "--json", "--database", database, *arguments])))
    except CommandError:
        is_well = False
    report = Report(json.loads(out.getvalue()))
    assert report["healthy"] is is_well is not bool(report.problems)
    return report


@contextmanager
def site(where: str | dict[str, Any]) -> Iterator[None]:
    """The database of an address, or of an entry of settings.DATABASES, under the alias."""
    entry = databases.from_url(where) if isinstance(where, str) else where
    connections.settings[ALIAS] = connections.configure_settings({"default": entry})["default"]
    try:
        yield
    finally:
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.settings[ALIAS]


@pytest.fixture
def database(versioned_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    with django_db_blocker.unblock(), site(versioned_database):
        yield versioned_database


@pytest.fixture
def sql(database: str, worker_schema: str) -> Iterator[WorkerSql]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield WorkerSql(connection, worker_schema)


@pytest.mark.django_db(transaction=True)
def test_a_healthy_queue__has_nothing_but_short_lines() -> None:
    make_worker("django-worker-well", version=__version__, tasks=[], is_listening=True)

    report = doctor(database="default")

    assert report.problems == report.texts("note") == {}
    (heard,) = report.texts("ok")["notifications"]
    assert re.fullmatch(r"a notification arrived after [<\d.]+ ms", heard)
    lines = operate("doctor").out.splitlines()
    assert len(lines) == len(report["findings"])
    assert {line.split()[0] for line in lines} == {"ok"}


def test_what_fix_corrects__is_marked(sql: WorkerSql) -> None:
    sql.query("alter table {schema}._private_jobs set (autovacuum_enabled = false)")
    out = StringIO()
    with pytest.raises(CommandError, match=r"--fix corrects 1 of them"):
        call_command("graphile_worker", "doctor", database=ALIAS, stdout=out)
    (marked,) = [line for line in out.getvalue().splitlines() if line.endswith(" (--fix)")]
    assert "reset (autovacuum_enabled);" in marked


def test_damage_of_the_schema__is_named_and_corrected(sql: WorkerSql) -> None:
    job = sql.add_job(job_key="kept")
    add_retirements(sql)
    sql.query("drop index {schema}.jobs_plain_index")
    sql.query(
        "create or replace function {schema}._private_backoff(attempts int) returns float8 language sql as 'select 1.0'"
    )
    sql.query("alter table {schema}._private_jobs set (autovacuum_enabled = false)")
    rows = sql.jobs()

    report = doctor()

    (functions,) = report.problems["functions"]
    assert "_private_backoff, remove_job." in functions
    assert "missing (jobs_plain_index)" in report.problems["indexes"][0]
    assert "Autovacuum is off for the table _private_jobs." in report.problems["autovacuum"]
    assert report["fixes"] == []
    fixed = doctor("--fix")
    assert [(each["name"], each["level"], each["text"]) for each in fixed["fixes"]] == [
        ("functions", "fixed", "Restored: remove_job, _private_backoff."),
        ("indexes", "fixed", "Built: jobs_plain_index."),
        ("autovacuum", "fixed", "Autovacuum is on for the table _private_jobs."),
    ]
    assert fixed.problems == OF_THE_SERVER | {"workers": ["No worker is alive, and 1 job is ready."]}
    assert sql.jobs() == rows
    assert sql.call("remove_job", job_key="kept")[0]["id"] == job["id"]
    assert doctor("--fix")["fixes"] == []


def test_an_index__is_not_built_behind_an_old_transaction(
    sql: WorkerSql, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PostgreSQL would wait for the end of the transaction, and leave an incomplete index if it is interrupted."""
    sql.query("drop index {schema}.jobs_plain_index")
    sql.query("drop function {schema}._private_host_of(text)")
    with psycopg.connect(database) as holder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview, "LONG_TRANSACTION", 0.0)
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select")
        report = doctor("--fix")
        pid = holder.info.backend_pid
    assert [each["text"] for each in report["fixes"]] == ["Restored: _private_host_of."]
    assert report.remedies("indexes").startswith(f"End this first: The session {pid} (idle in transaction) has held")
    assert f"select pg_terminate_backend({pid});" in report.remedies("indexes")
    capsys.readouterr()

    def built(*arguments: Any, **options: Any) -> str:
        assert "Building indexes." in capsys.readouterr().err
        return "Built."

    monkeypatch.setattr(examinations, "repair", built)
    assert [each["text"] for each in doctor("--fix")["fixes"]] == ["Built."]


def test_functions_of_a_newer_version__are_left_alone(sql: WorkerSql) -> None:
    sql.query("insert into django_migrations (app, name, applied) values ('graphile_worker', '9999_newer', now())")
    sql.query("drop function {schema}._private_host_of(text)")

    report = doctor("--fix")

    assert report["fixes"] == []
    assert "9999_newer" in report.texts("note")["migrations"][0]
    assert sql.query("select from pg_proc where proname = '_private_host_of'") == []


def test_a_breaking_migration__is_all_that_is_said_of_the_queue(sql: WorkerSql) -> None:
    sql.query("insert into {schema}.migrations (id, breaking) values (99, true)")
    report = doctor()
    assert "breaking migration 99" in report.problems["ledger"][0]
    assert "workers" not in {each["name"] for each in report["findings"]}


def test_migrations_that_wait__are_to_be_applied_and_not_repaired(sql: WorkerSql) -> None:
    sql.query("delete from django_migrations where app = 'graphile_worker' and name > '0003'")
    sql.query("drop function {schema}._private_host_of(text)")
    report = doctor()
    assert report.problems["migrations"][0].startswith("Migrations were not applied: 0003_functions, 0004_indexes")
    assert "functions" not in report.problems


def test_what_holds_vacuum_back__is_named_with_its_query(
    sql: WorkerSql, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "transactions" not in doctor().problems
    monkeypatch.setattr(overview, "LONG_TRANSACTION", 0.0)
    monkeypatch.setattr(diagnosis, "MANY_TRANSACTIONS", 0)
    with psycopg.connect(database, application_name="a report") as holder, psycopg.connect(database) as other:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 'a\nslow query', 'password=hunter2'")
        other.execute("create table anything ()")
        other.execute("prepare transaction 'forgotten'")
        pid = holder.info.backend_pid
        report = doctor()
        session, prepared = sorted(report.problems["transactions"], reverse=True)
        assert re.fullmatch(
            rf"The session {pid} \(a report, idle in transaction\) has .*: select 'a slow query', 'password=••••••'?",
            session,
        )
        assert prepared.startswith("The prepared transaction 'forgotten' has held vacuum back for ")
        assert f"select pg_terminate_backend({pid});" in report.remedies("transactions")
        assert "rollback prepared 'forgotten'" in report.remedies("transactions")
        with as_role(sql, database, STRANGER):
            report = doctor()
            assert f"The session {pid} (a report) has held vacuum back for" in report.problems["transactions"][0]
            (hidden,) = report.texts("note")["transactions"]
            assert hidden == f"Only the transactions of '{STRANGER}' are visible with their times."
            assert f'grant pg_read_all_stats to "{STRANGER}"; shows all.' in report.remedies("transactions")
            sql.query(f"grant pg_read_all_stats to {STRANGER}")
            assert "transactions" not in doctor().texts("note")
        sql.query("rollback prepared 'forgotten'")


def test_dead_rows__are_vacuumed_unless_a_transaction_holds_them(
    sql: WorkerSql, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MANY_DEAD_ROWS", 100)
    sql.query("insert into {schema}._private_tasks (identifier) select n::text from generate_series(1, 500) n")
    sql.query("delete from {schema}._private_tasks")
    sql.query("select pg_stat_force_next_flush()")
    sql.query("select 1")
    (text,) = doctor().problems["tables"]
    assert re.fullmatch(r"_private_tasks has 5\d\d dead rows, and 0 live ones\. Last vacuum: never\.", text)
    with psycopg.connect(database) as holder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview, "LONG_TRANSACTION", 0.0)
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select")
        held = doctor("--fix")
        assert held["fixes"] == []
        assert held.remedies("tables").startswith("Vacuum cannot remove them")
    fixed = doctor("--fix")
    assert [each["text"] for each in fixed["fixes"]] == ["Vacuumed the table _private_tasks."]
    assert fixed.problems == OF_THE_SERVER | NO_WORKER


def test_bloat(sql: WorkerSql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examinations, "BLOATED", 1_000_000)
    # A row at the end of the table keeps its room.
    sql.query(
        "insert into {schema}._private_tasks (identifier) select n || repeat('x', 100) from generate_series(1, 9999) n"
    )
    sql.query("delete from {schema}._private_tasks where identifier not like '9999x%%'", *())
    sql.query("vacuum {schema}._private_tasks")
    report = doctor()
    assert "The indexes of _private_tasks take" in report.problems["tables"][0]
    assert "reindex table concurrently" in report.remedies("tables")
    assert report.texts("note")["tables"][0].startswith("_private_tasks takes")
    sql.query(f'reindex table concurrently "{sql.schema}"._private_tasks')
    assert "tables" not in doctor().problems


# Roles belong to the whole server, which several test processes use.
STRANGER, ADDER, WORKER = (f"{name}_{os.getpid()}" for name in ("stranger", "adder", "worker"))


@contextmanager
def as_role(sql: WorkerSql, url: str, role: str, *, kind: str = "") -> Iterator[None]:
    """Connect as a new role, with the grants of this kind."""
    sql.query(f"create role {role} login")
    try:
        if kind:
            sql.query(operate("grants", role, "--kind", kind).out)
        connections[ALIAS].close()
        before, connections[ALIAS].settings_dict["USER"] = connections[ALIAS].settings_dict["USER"], role
        try:
            yield
        finally:
            connections[ALIAS].close()
            connections[ALIAS].settings_dict["USER"] = before
    finally:
        sql.query(f"drop owned by {role}")
        sql.query(f"drop role {role}")


def test_roles(sql: WorkerSql, database: str) -> None:
    with as_role(sql, database, STRANGER):
        report = doctor()
        assert report.problems["role"][0].startswith(f"The role '{STRANGER}' may neither add nor run jobs: it has no")
        assert f"grants {STRANGER} --kind worker" in report.remedies("role")
        # What needs the tables would fail for the same reason.
        assert "workers" not in {each["name"] for each in report["findings"]}
    with as_role(sql, database, ADDER, kind="adder"):
        assert doctor().texts("note")["role"][0].startswith(f"The role '{ADDER}' may add jobs, but not run them")
    sql.query("drop index {schema}.jobs_plain_index")
    with as_role(sql, database, WORKER, kind="worker"):
        report = doctor("--fix")
        assert report.texts("ok")["role"] == [f"'{WORKER}' may add and run jobs"]
        assert report["fixes"] == [
            {"name": "role", "level": "failed", "text": "Nothing was changed. Run it as the owner of the schema."}
        ]
        assert "indexes" in report.problems
        assert "migrations" in report.texts("note")


def test_a_table_that_somebody_has_locked__stops_only_what_needs_it(
    sql: WorkerSql, database: str, settings: Any
) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"ADMIN_STATEMENT_TIMEOUT": 0.3}
    with psycopg.connect(database) as holder:
        holder.execute(f'lock table "{sql.schema}"._private_workers'.encode())
        report = doctor()
    assert report.problems["workers"][0].startswith("This could not be examined: canceling statement due to")
    assert report.texts("ok")["functions"] == ["those of this package"]
    assert doctor().problems["workers"] == NO_WORKER["workers"]


@pytest.mark.skipif(BINARY is None, reason=REASON)
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_behind_a_pooler(
    mode: str,
    versioned_database: str,
    wait_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    monkeypatch.setattr(examinations, "FIRST_PROOF_WITHIN", 1.0 if mode == "transaction" else 60.0)
    with pgbouncer(versioned_database, mode=mode, wait_until=wait_until) as url:
        with django_db_blocker.unblock(), site(url):
            report = doctor()
    assert ", through a pooler, in " in report.texts("ok")["connection"][0]
    assert ("notifications" in report.problems) is (mode == "transaction")
    if mode == "transaction":
        assert report.problems["notifications"][0].startswith("LISTEN was accepted, and no notification arrived in 1")
        assert "A pooler in transaction mode does not pass notifications on" in report.remedies("notifications")


def test_without_a_schema(fresh_database: Callable[[], str], django_db_blocker: DjangoDbBlocker) -> None:
    with django_db_blocker.unblock(), site(fresh_database()):
        report = doctor("--fix")
        assert list(report.problems) == ["schema"]
        assert 'Run "manage.py migrate graphile_worker --database doctored"' in report.problems["schema"][0]
        assert "notifications" in report.texts("ok")


def test_a_database_that_cannot_be_reached(django_db_blocker: DjangoDbBlocker) -> None:
    with django_db_blocker.unblock(), site(make_conninfo(host="127.0.0.1", port=1, dbname="x")):
        report = doctor()
    assert list(report.problems) == ["connection"]
    assert "Connection refused" in report.problems["connection"][0]
    assert report["findings"][-1]["name"] == "connection"


def test_a_database_that_is_not_postgresql(django_db_blocker: Any) -> None:
    connections.settings[ALIAS] = connections.configure_settings({"default": {"ENGINE": "django.db.backends.sqlite3"}})[
        "default"
    ]
    try:
        with django_db_blocker.unblock():
            report = doctor()
    finally:
        del connections[ALIAS]
        del connections.settings[ALIAS]
    assert "The queue needs PostgreSQL" in report.problems["settings"][0]


@pytest.mark.django_db
class TestWorkers:
    def test_tasks_and_locks_that_nobody_looks_after(self) -> None:
        make_worker("django-worker-old", version="0.0.1", tasks=["other"], is_listening=False, host="here", pid=7)
        make_worker("django-worker-quiet", listens=False, is_listening=False, host="there", pid=8, tasks=[])
        make_worker("django-worker-dead", beat=minutes_ago(10), host="gone")
        job = make_job("nobodys")
        make_job("other", locked_by="django-worker-dead/1")

        report = doctor(database="default")

        assert report.problems["tasks"] == [f"No live worker has the tasks of waiting jobs: nobodys (#{job})."]
        assert report.problems["workers"] == ["1 silent worker holds jobs: gone.", "Workers only poll: here (pid 7)."]
        assert report.texts("note")["workers"] == [
            "Workers only poll, because they were started with LISTEN off: there (pid 8)."
        ]
        assert report.texts("note")["versions"] == [f"This process has {__version__}. Workers have 0.0.1 (1 worker)."]
        assert report.texts("note")["notifications"][0].startswith("Not tried: inside a transaction")

    def test_an_item_whose_runs_are_those_of_another_program(self, worker_schema: str) -> None:
        crontab = {"SCHEMA": worker_schema, "CRONTAB": "0 4 * * * send_receipt ?id=nightly"}
        add = "insert into {schema}._private_known_crontabs values ('nightly', now(), %s)"
        with override_settings(GRAPHILE_WORKER=crontab):
            execute(add, ["2026-03-01 04:00Z"])
            assert "crontab" not in doctor(database="default").texts("note")
            execute("update {schema}._private_known_crontabs set last_execution = '2026-03-01 04:30Z'")
            (text,) = doctor(database="default").texts("note")["crontab"]
        assert text.startswith("The item 'nightly' last ran at 2026-03-01 04:30 UTC, when it is not due")

    def test_jobs_that_wait_for_a_worker_or_the_end_of_a_pause(self) -> None:
        make_job("send")
        make_job("send", run_at=minutes_ago(-10))
        operate("pause", "--task", "send", "--reason", "an outage", "--by", "ada")
        report = doctor(database="default")
        assert report.problems["workers"] == ["No worker is alive, and 1 job is ready."]
        (text,) = report.texts("note")["pauses"]
        assert re.fullmatch(r"Paused: task send since [-\d]+ [:\d]+ \(an outage\)\.", text)

    def test_the_report_for_people__ends_with_the_problem_and_its_remedy(self) -> None:
        out = StringIO()
        with pytest.raises(CommandError, match=r"^Found 0 errors and 1 warning\.$"):
            call_command("graphile_worker", "doctor", stdout=out)
        problem, remedy = out.getvalue().splitlines()[-2:]
        assert re.fullmatch(r"warning  workers +No worker is alive\.", problem)
        assert remedy.strip() == 'Start one: "manage.py runworker".'
        assert problem.index("No worker") == remedy.index("Start")


def test_the_clock(monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    assert "clocks" not in doctor().problems
    clock = SimpleNamespace(time=lambda: time.time() + 3600, monotonic=time.monotonic)
    monkeypatch.setattr(examinations, "time", clock)
    assert doctor().problems["clocks"] == ["The clocks of this machine and the database differ by 1 h."]
    assert doctor().remedies("clocks").startswith("This machine is ahead.")
