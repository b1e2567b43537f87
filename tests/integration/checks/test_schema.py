"""The checks of a worker schema."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from django.core.checks import Error, Warning  # noqa: A004 - Django's names
from django.core.management import call_command
from django.db import connection

from django_graphile_worker import add_job, task
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.install.indexes import REMEDY
from tests.integration.checks.conftest import found
from tests.support.rows import in_quotes


@pytest.mark.django_db
class TestSchema:
    def test_an_installed_schema(self) -> None:
        assert found(databases=["default"]) == []

    def test_a_schema_that_is_not_installed(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"drop schema {in_quotes(worker_schema)} cascade")
            cursor.execute("delete from django_migrations where app = 'graphile_worker'")
        assert found(databases=["default"]) == [
            Warning(
                f"The database 'default' has no worker schema '{worker_schema}', or an incomplete one. "
                'Run "manage.py migrate graphile_worker". If the schema was dropped or renamed after a migrate, '
                '"manage.py check --database default" says what to do.',
                hint="Jobs can be added and run once the app is migrated.",
                id="graphile_worker.W001",
            )
        ]

    def test_a_server_that_is_too_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "pg_version", 140_012)
        (error,) = found(databases=["default"])
        assert (error.id, error.msg) == (
            "graphile_worker.E024",
            "The database 'default' is PostgreSQL 14. Jobs need PostgreSQL 15 or newer.",
        )

    def test_a_schema_that_is_about_to_be_installed(self, worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"drop schema {in_quotes(worker_schema)} cascade")
            cursor.execute("delete from django_migrations where app = 'graphile_worker'")
        monkeypatch.setattr(sys, "argv", ["manage.py", "migrate", "--no-input"])
        assert found(databases=["default"]) == []

    def test_a_schema_that_was_renamed_after_migrate(self, configure: Any) -> None:
        configure(SCHEMA="renamed")
        assert found(databases=["default"]) == [
            Error(
                "The app 'graphile_worker' is migrated in the database 'default', but the worker schema 'renamed' is "
                "missing or incomplete.",
                hint='To create an empty one, after DROP SCHEMA or under a new name: run "manage.py migrate '
                'graphile_worker zero --fake", then "manage.py migrate graphile_worker". If GRAPHILE_WORKER["SCHEMA"] '
                "was changed, the old schema stays, with its jobs; to keep on using it, change the setting back.",
                id="graphile_worker.E016",
            )
        ]

    def test_the_advice_after_a_changed_schema_name_works(
        self, configure: Any, worker_schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = add_job("stays")
        configure(SCHEMA="renamed")
        for advice in (["migrate", "graphile_worker", "zero", "--fake"], ["migrate", "graphile_worker"]):
            monkeypatch.setattr(sys, "argv", ["manage.py", *advice])
            call_command(*advice, verbosity=0, skip_checks=False)
        assert found(databases=["default"]) == []
        assert add_job("new").id == 1
        with connection.cursor() as cursor:
            cursor.execute(f"select id from {in_quotes(worker_schema)}._private_jobs")
            assert cursor.fetchall() == [(job.id,)]


@pytest.mark.django_db
class TestRowSecurity:
    def test_a_role_that_sees_nothing(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("create role blind_role")
            cursor.execute("set local role blind_role")
        assert found(databases=["default"]) == [
            Error(
                f"The role 'blind_role' may not use the worker schema '{worker_schema}' in the database 'default': "
                "_private_job_queues, _private_jobs, _private_tasks appear empty to it. Row-level "
                "security hides its tables from every role but their owner: connect as the owner, or let the owner run "
                'the SQL that "manage.py graphile_worker grants <role>" prints; --kind worker is for workers.',
                hint='"manage.py graphile_worker grants blind_role --kind worker" prints the SQL for a role that runs '
                "jobs.",
                id="graphile_worker.E015",
            )
        ]

    @pytest.mark.parametrize(
        ("policy", "is_blind"),
        [
            ("to seeing_role using (true)", False),
            ("to public using (true)", False),
            ("for select to group_role using (true)", False),
            ("for insert to seeing_role with check (true)", True),
            ("to another_role using (true)", True),
        ],
    )
    def test_a_role_sees_by_policies_of_its_own(self, policy: str, is_blind: bool, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("create role group_role; create role another_role")
            cursor.execute("create role seeing_role in role group_role")
            for table in ("_private_jobs", "_private_job_queues", "_private_tasks"):
                cursor.execute(f"create policy seen on {in_quotes(worker_schema)}.{table} {policy}")
            cursor.execute("set local role seeing_role")
        expected = ["graphile_worker.E015"] if is_blind else []
        assert [message.id for message in found(databases=["default"])] == expected


@pytest.mark.django_db
class TestIndexes:
    @pytest.mark.parametrize(
        ("statement", "missing", "incomplete"),
        [
            ("drop index {schema}.jobs_queued_index", "jobs_queued_index", "none"),
            (
                "update pg_index set indisvalid = false where indexrelid = '{schema}.jobs_locked_index'::regclass",
                "none",
                "jobs_locked_index",
            ),
        ],
    )
    def test_an_index_that_is_missing_or_incomplete(
        self, worker_schema: str, monkeypatch: pytest.MonkeyPatch, statement: str, missing: str, incomplete: str
    ) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(schema=in_quotes(worker_schema)))
        (warning,) = found(databases=["default"])
        assert warning == Warning(
            f"The worker schema '{worker_schema}' in the database 'default' lacks indexes: "
            f"missing ({missing}), incomplete ({incomplete}). With many jobs, finding them is slow.",
            hint=REMEDY,
            id="graphile_worker.W005",
        )
        assert '"manage.py graphile_worker repair"' in REMEDY
        monkeypatch.setattr(sys, "argv", ["manage.py", "migrate", "graphile_worker"])
        assert found(databases=["default"]) == []

    def test_indexes_are_not_missed_before_their_migrations(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"drop table {in_quotes(worker_schema)}._private_statistics")
            cursor.execute(f"drop index {in_quotes(worker_schema)}.jobs_queued_index")
        assert found(databases=["default"]) == []


@pytest.mark.django_db
class TestTimeouts:
    def test_workers_with_different_timeouts(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            table = f"{in_quotes(worker_schema)}._private_workers"
            cursor.execute(f"insert into {table} (id, timeout_seconds) values ('a', 60), ('b', 60), ('old', null)")
            cursor.execute(f"insert into {table} values ('dead', now() - interval '1 hour', now(), '{{}}', 9, 3)")
            assert found(databases=["default"]) == []
            cursor.execute(f"insert into {table} (id, timeout_seconds) values ('c', 5)")
        (warning,) = found(databases=["default"])
        assert warning.id == "graphile_worker.W006"
        assert warning.msg.endswith(" have different values of WORKER_TIMEOUT: 5, 60 seconds.")


pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def report() -> None:
    task("report")(lambda payload: None)
    names = ("nightly", "weekly", "monthly")
    Schedule.objects.bulk_create([Schedule(name=name, task="report", cron="0 4 * * *") for name in names])


def test_schedules_that_can_fire() -> None:
    assert found(databases=["default"]) == []


def test_task_that_is_gone__is_named_once_with_a_suggestion() -> None:
    Schedule.objects.exclude(name="nightly").update(task="reprot")
    (warning,) = found(databases=["default"])
    assert warning.id == "graphile_worker.W011"
    assert warning.msg.startswith("The schedule 'monthly' and 1 more in the database 'default': this project has no")
    assert "'report'" in str(warning.hint)
    Schedule.objects.update(is_enabled=False)
    assert found(databases=["default"]) == []


def test_times_that_cannot_be_read() -> None:
    Schedule.objects.filter(name="nightly").update(cron="61 4 * * *")
    Schedule.objects.filter(name="weekly").update(time_zone="Europe/Berln", cron=None, interval="10")
    zone, line = sorted(found(databases=["default"]), key=lambda message: message.msg, reverse=True)
    assert {zone.id, line.id} == {"graphile_worker.W012"}
    assert "'weekly'" in zone.msg
    assert "Europe/Berlin" in zone.msg
    assert "61" in line.msg


def test_name_of_a_crontab_item__of_this_project_or_of_another(configure: Any, worker_schema: str) -> None:
    configure(CRONTAB="0 4 * * * report ?id=nightly")
    with connection.cursor() as cursor:
        table = f"{in_quotes(worker_schema)}._private_known_crontabs"
        cursor.execute(f"insert into {table} (identifier, known_since) values ('weekly', now())")
    (warning,) = found(databases=["default"])
    assert warning.id == "graphile_worker.W013"
    assert "have the names of crontab items: 'nightly', 'weekly'. Both fire" in warning.msg
