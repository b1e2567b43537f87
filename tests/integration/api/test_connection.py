from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import modify_settings, override_settings

from django_graphile_worker import (
    InvalidJobError,
    JobSpec,
    SchemaError,
    add_job,
    add_jobs,
    complete_jobs,
    force_unlock_workers,
    permanently_fail_jobs,
    remove_job,
    reschedule_jobs,
)
from django_graphile_worker.exceptions import ConfigurationError
from tests.support.rows import in_quotes, query

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


class TestErrors:
    def test_an_unknown_alias_is_refused(self) -> None:
        with pytest.raises(ConfigurationError) as refused:
            add_job("a", using="nowhere")
        assert str(refused.value) == (
            "using: expected an alias of settings.DATABASES ('default', 'other'), got 'nowhere'."
        )

    def test_another_engine_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "vendor", "sqlite")
        with pytest.raises(ConfigurationError) as refused:
            add_job("a")
        assert str(refused.value) == (
            "The queue needs PostgreSQL, and the database 'default' is sqlite. "
            'Choose another database with using=... or GRAPHILE_WORKER["DATABASE"].'
        )

    def test_times_that_cannot_be_read_are_refused_before_a_job_is_added(self, worker_schema: str) -> None:
        """Outside of a transaction the job would be committed when psycopg raises, and a caller would add it again."""
        with connection.cursor() as cursor:
            cursor.execute("set local datestyle = 'SQL, DMY'")
            with pytest.raises(ConfigurationError, match="The DateStyle of the database 'default' is 'SQL, DMY'"):
                add_job("a")
            cursor.execute(f'select count(*) from "{worker_schema}"._private_jobs')
            assert cursor.fetchone() == (0,)

    @pytest.mark.parametrize(
        "act",
        [
            lambda: add_job("a"),
            lambda: add_jobs([JobSpec("a")]),
            lambda: remove_job("k"),
            lambda: complete_jobs([1]),
            lambda: force_unlock_workers(["w"]),
        ],
    )
    def test_a_missing_schema_says_to_migrate(self, act: Callable[[], Any]) -> None:
        with override_settings(GRAPHILE_WORKER={"SCHEMA": "not_there"}):
            with pytest.raises(SchemaError) as refused, transaction.atomic():
                act()
        assert str(refused.value) == (
            "The database 'default' has no worker schema 'not_there', or an incomplete one. "
            'Run "manage.py migrate graphile_worker". If the schema was dropped or renamed after a migrate, '
            '"manage.py check --database default" says what to do.'
        )

    @pytest.mark.parametrize("schema", ["not_there", "of_another_program"])
    def test_a_missing_app_is_named_first(self, schema: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("create schema of_another_program")
        with (
            override_settings(GRAPHILE_WORKER={"SCHEMA": schema}),
            modify_settings(INSTALLED_APPS={"remove": ["django_graphile_worker"]}),
        ):
            with pytest.raises(SchemaError) as refused, transaction.atomic():
                add_job("a", job_key="k")
        assert 'Add "django_graphile_worker" to INSTALLED_APPS. Run "manage.py migrate' in str(refused.value)

    def test_what_the_database_refuses_is_an_invalid_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = JobSpec("a")
        object.__setattr__(spec, "identifier", "x" * 129)
        with pytest.raises(InvalidJobError, match=r"^Task identifier is too long") as refused, transaction.atomic():
            add_jobs([spec])
        assert refused.value.__cause__ is not None

    @pytest.fixture
    def blind_role(self, worker_schema: str) -> Iterator[None]:
        """Become a role that may do everything but see the rows."""
        with connection.cursor() as cursor:
            cursor.execute("create role blind_role")
            cursor.execute(f"grant usage on schema {in_quotes(worker_schema)} to blind_role")
            cursor.execute(f"grant all on all tables in schema {in_quotes(worker_schema)} to blind_role")
            cursor.execute(f"grant all on all sequences in schema {in_quotes(worker_schema)} to blind_role")
            cursor.execute("set local role blind_role")
        yield
        with connection.cursor() as cursor:
            cursor.execute("reset role")

    @pytest.mark.parametrize(
        "act",
        [
            lambda: remove_job("k"),
            lambda: complete_jobs([1]),
            lambda: permanently_fail_jobs([1]),
            lambda: reschedule_jobs([1]),
            lambda: force_unlock_workers(["w"]),
        ],
    )
    @pytest.mark.usefixtures("blind_role")
    def test_a_role_that_sees_no_rows_gets_an_error(self, act: Callable[[], Any], worker_schema: str) -> None:
        with pytest.raises(SchemaError) as refused:
            act()
        assert str(refused.value) == (
            f"The role 'blind_role' may not use the worker schema '{worker_schema}' in the database 'default': "
            "_private_job_queues, _private_jobs, _private_tasks appear empty to it. Row-level "
            "security hides its tables from every role but their owner: connect as the owner, or let the owner run the "
            'SQL that "manage.py graphile_worker grants <role>" prints; --kind worker is for workers.'
        )

    @pytest.mark.usefixtures("blind_role")
    def test_a_role_that_may_not_add_gets_an_error(self) -> None:
        with pytest.raises(SchemaError, match=": new row violates row-level security"), transaction.atomic():
            add_job("a")

    def test_a_function_that_returns_nothing_is_not_ours(self, worker_schema: str) -> None:
        """As the original's may, under contention: the request would be lost without a word."""
        (definition,) = query("select pg_get_functiondef(%s::regproc)", f"{in_quotes(worker_schema)}.add_job")[0]
        head = definition.partition("AS $function$")[0]
        with connection.cursor() as cursor:
            cursor.execute(f"{head} AS $function$ begin return null; end $function$")
        for mode in ("replace", "unsafe_dedupe"):
            with pytest.raises(SchemaError) as refused:
                add_job("a", job_key="k", job_key_mode=mode)
            assert str(refused.value) == (
                f"The database returned no job. Either the functions in the schema '{worker_schema}' are those of "
                'another program: run "manage.py graphile_worker repair". Or a trigger on its table of jobs keeps rows '
                "from being inserted: drop it."
            )

    def test_other_database_errors_are_left_alone(self) -> None:
        from django.db import OperationalError

        with pytest.raises(OperationalError), transaction.atomic():
            query("select set_config('statement_timeout', '1ms', true)")
            add_jobs([JobSpec("a", {"n": number}) for number in range(20_000)])
