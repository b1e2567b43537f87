from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections

import django_graphile_worker
from django_graphile_worker import Helpers, add_job, task
from django_graphile_worker.checks import databases
from django_graphile_worker.checks.configuration import SETTINGS_PAGE
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.registry import Registry, tasks
from django_graphile_worker.sql.install.indexes import REMEDY
from tests.support.rows import in_quotes

CHECKOUT = Path(__file__).parents[2]
not_callable = 5


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with tasks.isolated() as isolated:
        yield isolated


@pytest.fixture
def configure(settings: Any, worker_schema: str) -> Any:
    def change(**changes: Any) -> None:
        settings.GRAPHILE_WORKER = {"SCHEMA": worker_schema} | changes

    return change


def found(databases: Sequence[str] = ()) -> list[CheckMessage]:
    return list(django_checks.run_checks(tags=["graphile_worker"], databases=databases))


def test_a_project_without_mistakes_has_no_messages() -> None:
    assert found() == []


class TestSettings:
    def test_unknown_key(self, configure: Any) -> None:
        configure(CONCURENCY=5)
        assert found() == [
            Error(
                "GRAPHILE_WORKER: expected a known key, got 'CONCURENCY'. Did you mean 'CONCURRENCY'?",
                hint=f"Keys are upper-case; {SETTINGS_PAGE} lists them.",
                id="graphile_worker.E001",
            )
        ]

    def test_bad_values(self, configure: Any) -> None:
        configure(CONCURRENCY=0, LISTEN="yes")
        hint = f"{SETTINGS_PAGE} says what each setting takes."
        assert found() == [
            Error(
                'GRAPHILE_WORKER["CONCURRENCY"]: expected a whole number of at least 1, got 0.',
                hint=hint,
                id="graphile_worker.E002",
            ),
            Error(
                "GRAPHILE_WORKER[\"LISTEN\"]: expected True or False, got 'yes'.",
                hint=hint,
                id="graphile_worker.E002",
            ),
        ]

    def test_bad_schema_name(self, configure: Any) -> None:
        configure(SCHEMA='x"; drop schema public; --')
        assert found() == [
            Error(
                'GRAPHILE_WORKER["SCHEMA"]: expected a schema name of letters, digits and underscores that does '
                "not begin with a digit (at most 63 characters), got 'x\"; drop schema public; --'.",
                hint="The default is 'graphile_worker'. Rename the schema before the first migrate.",
                id="graphile_worker.E003",
            )
        ]

    def test_settings_that_are_no_dict(self, settings: Any) -> None:
        settings.GRAPHILE_WORKER = "graphile_worker"
        assert [(message.id, message.msg) for message in found()] == [
            ("graphile_worker.E002", "settings.GRAPHILE_WORKER: expected a dict, got 'graphile_worker'.")
        ]

    def test_a_project_with_a_bad_schema_name_starts_far_enough_to_be_told(self, tmp_path: Path) -> None:
        (tmp_path / "bad_settings.py").write_text(
            "from testproject.settings import *\nGRAPHILE_WORKER = {'SCHEMA': 'x; drop'}\n"
        )
        finished = subprocess.run(
            [sys.executable, "-m", "django", "check", "--settings=bad_settings"],
            env={"PYTHONPATH": f"{tmp_path}:{CHECKOUT}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 1
        assert "(graphile_worker.E003)" in finished.stderr
        assert "Traceback" not in finished.stderr


class TestDottedPaths:
    def test_middleware_that_cannot_be_imported(self, configure: Any) -> None:
        configure(MIDDLEWARE=[f"{__name__}.nothing", f"{__name__}.not_callable", f"{__name__}.found"])
        hint = "Write the module's path, a dot, and the name: 'shop.jobs.measure'."
        expected = 'GRAPHILE_WORKER["MIDDLEWARE"]: expected the dotted path of a callable, got'
        assert found() == [
            Error(
                f"{expected} '{__name__}.nothing', which cannot be imported: "
                f'Module "{__name__}" does not define a "nothing" attribute/class.',
                hint=hint,
                id="graphile_worker.E010",
            ),
            Error(f"{expected} '{__name__}.not_callable', which is 5.", hint=hint, id="graphile_worker.E010"),
        ]

    def test_forbidden_flags_that_cannot_be_imported(self, configure: Any) -> None:
        configure(FORBIDDEN_FLAGS="no_such_module.flags")
        assert found() == [
            Error(
                'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected the dotted path of a callable, got '
                "'no_such_module.flags', which cannot be imported: No module named 'no_such_module'.",
                hint="Write the module's path, a dot, and the name: 'shop.jobs.measure'.",
                id="graphile_worker.E011",
            )
        ]

    def test_forbidden_flags_need_no_path(self, configure: Any) -> None:
        configure(FORBIDDEN_FLAGS=["a.b"])
        assert found() == []


class TestTasks:
    def test_two_functions_under_one_identifier(self) -> None:
        @task("send")
        def one(payload: Any) -> None: ...

        @task("send")
        def two(payload: Any) -> None: ...

        assert found() == [
            Error(
                f"The task identifier 'send': expected one function, got 2: {one.place} and {two.place}.",
                hint='Give all but one another identifier: @task("billing:send").',
                obj=two,
                id="graphile_worker.E008",
            )
        ]
        assert f"{__file__}:" in found()[0].msg

    def test_an_identifier_that_is_too_long(self) -> None:
        @task("x" * 129)
        def long(payload: Any) -> None: ...

        assert found() == [
            Error(
                f"The task {long.place}: identifier: expected 1 to 128 characters, got 129 characters: {'x' * 40!r}….",
                hint='Give it a shorter identifier: @task("billing:send").',
                obj=long,
                id="graphile_worker.E009",
            )
        ]

    def test_a_parameter_that_nothing_would_fill(self) -> None:
        @task
        def three(a: Any, b: Any, c: Any) -> None: ...

        (message,) = found()
        assert message == Error(
            f"The task 'three', {three.place}: expected a task that takes (payload) or (payload, helpers), got "
            f"{three.function.__qualname__}(a: 'Any', b: 'Any', c: 'Any') -> 'None': nothing would fill 'c'. "
            "Put it into the payload.",
            hint="A job has one payload, any JSON value: def send(payload): ... payload['order'] ...",
            obj=three,
            id="graphile_worker.E017",
        )

    def test_a_second_parameter_that_does_not_look_like_helpers(self) -> None:
        @task
        def adder(x: int, y: int) -> None: ...

        @task
        def untyped(x, y): ...  # type: ignore[no-untyped-def]

        warned = found()
        assert warned[0] == Warning(
            f"The task 'adder', {adder.place}: its second parameter, 'y', gets the worker's helpers, "
            "not a part of the payload.",
            hint="If it should, call it helpers or annotate it with Helpers; if not, put its value into the payload.",
            obj=adder,
            id="graphile_worker.W004",
        )
        assert [(message.id, message.obj) for message in warned[1:]] == [("graphile_worker.W004", untyped)]

    def test_a_second_parameter_that_means_helpers(self) -> None:
        @task
        def named(payload: Any, helpers: Mapping[str, Any]) -> None: ...

        @task
        def annotated(payload: Any, worker: Helpers) -> None: ...

        @task
        def qualified(payload: Any, worker: django_graphile_worker.Helpers) -> None: ...

        @task
        def unused(payload: Any, _worker: int) -> None: ...

        @task
        def optional(payload: Any, dry_run: bool = False) -> None: ...

        assert found() == []


class TestCrontab:
    def test_mistakes_in_every_source_are_told(self, configure: Any, tmp_path: Path) -> None:
        @task(cron="61 4 * * *")
        def beside(payload: Any) -> None: ...

        crontab = tmp_path / "crontab"
        crontab.write_text("0 4 * * * send_receipt ?fill=soon\n")
        configure(CRONTAB=["99 * * * * send_receipt", CronItem("", "* * * * *"), 5], CRONTAB_FILE=crontab)
        messages = found()
        assert {message.id for message in messages} == {"graphile_worker.E012"}
        text = "\n".join(message.msg for message in messages)
        for source in ('GRAPHILE_WORKER["CRONTAB"] entry 1', f"{crontab} line 1", "@task(cron=...) of beside"):
            assert source in text
        assert "expected a CronItem or crontab text, got '5'" in text

    def test_a_task_that_nobody_registered(self, configure: Any) -> None:
        configure(CRONTAB="0 4 * * * send_reciept")
        (message,) = found()
        assert message.id == "graphile_worker.E013"
        assert message.hint == "Tasks are found in the tasks.py of every installed app."
        assert message.msg.splitlines()[0] == (
            'GRAPHILE_WORKER["CRONTAB"] line 1, column 11: expected the identifier of a registered task '
            "(did you mean 'send_receipt'?), got 'send_reciept'"
        )

    def test_a_file_that_cannot_be_read(self, configure: Any, tmp_path: Path) -> None:
        configure(CRONTAB_FILE=tmp_path / "missing")
        assert found() == [
            Error(
                f'GRAPHILE_WORKER["CRONTAB_FILE"]: expected a file that can be read, got '
                f"'{tmp_path / 'missing'}': No such file or directory.",
                hint="A relative path is relative to where the command is started.",
                id="graphile_worker.E012",
            )
        ]

    def test_a_crontab_without_mistakes(self, configure: Any) -> None:
        configure(CRONTAB="0 4 * * * send_receipt")
        assert found() == []


class AllElsewhere:
    def db_for_write(self, model: type[Any], **hints: Any) -> str | None:
        return "other"

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == "default"


class NoOpinion:
    pass


class TestDatabase:
    def test_an_alias_that_is_missing(self, configure: Any) -> None:
        configure(DATABASE="queue")
        assert found() == [
            Error(
                "The queue's database: expected an alias of settings.DATABASES ('default', 'other'), got 'queue'.",
                hint='Set GRAPHILE_WORKER["DATABASE"] to one of them, or look at DATABASE_ROUTERS.',
                id="graphile_worker.E004",
            )
        ]

    def test_an_engine_that_is_not_postgresql(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "vendor", "sqlite")
        monkeypatch.setitem(connections.settings["default"], "ENGINE", "django.db.backends.sqlite3")
        assert found() == [
            Error(
                "The queue's database 'default': expected the engine 'django.db.backends.postgresql', got "
                "'django.db.backends.sqlite3'.",
                hint='The queue lives in PostgreSQL. Name such a database in GRAPHILE_WORKER["DATABASE"].',
                id="graphile_worker.E005",
            )
        ]

    @pytest.mark.parametrize(
        ("version", "message", "identifier"),
        [
            (
                None,
                "Expected psycopg 3.2.10 or newer, got none: psycopg 2 cannot run the worker.",
                "graphile_worker.E006",
            ),
            (
                (3, 2, 9),
                "Expected psycopg 3.2.10 or newer, got 3.2.9, which loses memory while it listens.",
                "graphile_worker.E007",
            ),
        ],
    )
    def test_psycopg(self, version: Any, message: str, identifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(databases, "psycopg_version", lambda: version)
        hint = "Install it: python -m pip install 'psycopg[binary]>=3.2.10'"
        assert found() == [Error(message, hint=hint, id=identifier)]

    def test_the_version_of_psycopg_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        version = databases.psycopg_version()
        assert version
        assert version >= (3, 2, 10)
        monkeypatch.setitem(sys.modules, "psycopg", None)
        assert databases.psycopg_version() is None

    def test_routers_that_disagree_with_themselves(self, settings: Any) -> None:
        settings.DATABASE_ROUTERS = [f"{__name__}.AllElsewhere"]
        assert found() == [
            Error(
                "The database routers send jobs to 'other': expected that they let the app 'graphile_worker' "
                "migrate there, got a refusal from allow_migrate().",
                hint="Make allow_migrate() and db_for_write() of your routers agree on this app.",
                id="graphile_worker.E014",
            )
        ]

    def test_routers_that_disagree_with_the_setting(
        self, settings: Any, configure: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.DATABASE_ROUTERS = [f"{__name__}.AllElsewhere"]
        monkeypatch.setattr(AllElsewhere, "allow_migrate", lambda *args, **kwargs: True)
        monkeypatch.setitem(connections.settings, "third", connections.settings["other"])
        configure(DATABASE="third")
        assert found() == [
            Warning(
                "The database routers send jobs to 'other': expected 'third', which "
                'GRAPHILE_WORKER["DATABASE"] says.',
                hint="The routers are obeyed. Make them and the setting agree.",
                id="graphile_worker.W003",
            )
        ]

    def test_routers_without_an_opinion(self, settings: Any, configure: Any) -> None:
        settings.DATABASE_ROUTERS = [f"{__name__}.NoOpinion"]
        configure(DATABASE="other")
        assert found() == []

    @pytest.mark.parametrize(
        ("pool", "size"),
        [(True, 4), ({"max_size": 9}, 9), ({"min_size": 2}, 2), ({"max_size": 10}, None), (False, None)],
    )
    def test_a_pool_that_is_too_small(self, pool: Any, size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": pool})
        warning = Warning(
            "The connection pool of the database 'default': expected at least as many connections as jobs run at "
            f"the same time (10), got {size}.",
            hint='Raise OPTIONS["pool"]["max_size"], or lower GRAPHILE_WORKER["CONCURRENCY"].',
            id="graphile_worker.W002",
        )
        assert found() == ([warning] if size else [])


@pytest.mark.django_db
class TestInstallation:
    def test_an_installed_schema(self) -> None:
        assert found(databases=["default"]) == []

    def test_a_schema_that_is_not_installed(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"drop schema {in_quotes(worker_schema)} cascade")
            cursor.execute("delete from django_migrations where app = 'graphile_worker'")
        assert found(databases=["default"]) == [
            Warning(
                f"Expected the worker schema '{worker_schema}' in the database 'default', got none, or an "
                'incomplete one. Run "manage.py migrate graphile_worker". If GRAPHILE_WORKER["SCHEMA"] was changed, '
                '"manage.py check --database default" says what to do.',
                hint="Jobs can be added and run once the app is migrated.",
                id="graphile_worker.W001",
            )
        ]

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
                "The app 'graphile_worker' is migrated in the database 'default', but: expected the worker "
                "schema 'renamed', got none, or an incomplete one.",
                hint='Was GRAPHILE_WORKER["SCHEMA"] changed? Set it back. Or leave the old schema where it is, with '
                'its jobs, and make an empty one under the new name: run "manage.py migrate graphile_worker zero '
                '--fake", then "manage.py migrate graphile_worker".',
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
            f"The worker schema '{worker_schema}' in the database 'default': expected all its indexes, got some "
            f"missing ({missing}) or incomplete ({incomplete}). Where jobs are many they are found slowly.",
            hint=REMEDY,
            id="graphile_worker.W005",
        )
        assert '"manage.py graphile_worker repair"' in REMEDY
        monkeypatch.setattr(sys, "argv", ["manage.py", "migrate", "graphile_worker"])
        assert found(databases=["default"]) == []

    def test_workers_with_different_timeouts(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            table = f"{in_quotes(worker_schema)}._private_workers"
            cursor.execute(f"insert into {table} (id, timeout_seconds) values ('a', 60), ('b', 60), ('old', null)")
            cursor.execute(f"insert into {table} values ('dead', now() - interval '1 hour', now(), '{{}}', 9, 3)")
            assert found(databases=["default"]) == []
            cursor.execute(f"insert into {table} (id, timeout_seconds) values ('c', 5)")
        (warning,) = found(databases=["default"])
        assert warning.id == "graphile_worker.W006"
        assert warning.msg.endswith("expected all of them to have the same WORKER_TIMEOUT, got 5, 60 seconds.")

    def test_indexes_are_not_missed_before_their_migrations(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"drop table {in_quotes(worker_schema)}._private_statistics")
            cursor.execute(f"drop index {in_quotes(worker_schema)}.jobs_queued_index")
        assert found(databases=["default"]) == []

    def test_a_role_that_sees_nothing(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("create role blind_role")
            cursor.execute("set local role blind_role")
        assert found(databases=["default"]) == [
            Error(
                f"Expected a role that may use the worker schema '{worker_schema}' in the database 'default', got "
                "'blind_role', to whom _private_job_queues, _private_jobs, _private_tasks look empty. Row-level "
                "security hides its tables from every role but their owner: connect as the owner, or grant this "
                "role what it needs, policies included.",
                hint="Connect as the owner of the schema, or give the role BYPASSRLS or policies.",
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

    def test_databases_are_looked_at_only_when_asked(self, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(0):
            found()
            found(databases=["other"])

    def test_a_database_that_cannot_be_reached_is_not_this_checks_business(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from django.db import OperationalError

        def refuse(*args: Any) -> Any:
            raise OperationalError("connection refused")

        monkeypatch.setattr(connection, "cursor", refuse)
        assert found(databases=["default"]) == []

    def test_manage_py_check_runs_them(self, configure: Any) -> None:
        call_command("check", databases=["default"])
        configure(LISTEN="yes")
        with pytest.raises(SystemCheckError, match=r"graphile_worker\.E002"):
            call_command("check")
