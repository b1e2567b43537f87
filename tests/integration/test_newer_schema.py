"""A newer graphile-worker, or graphile_worker for Rust, has been at the schema: what commands and checks say."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.core import checks
from django.core.management import CommandError

from django_graphile_worker import Worker, add_job
from django_graphile_worker.exceptions import BreakingMigrationError, SchemaError
from tests.support.operating import execute, operate

SENTENCE = "for Rust: its breaking migration 21 came after 20. Upgrade"
# As graphile_worker for Rust has it: the same arguments, another text, and an error of its own.
RUST_ADD_JOB = """create or replace function {schema}.add_job(
  identifier text, payload json default null::json, queue_name text default null::text,
  run_at timestamptz default null::timestamptz, max_attempts integer default null::integer,
  job_key text default null::text, priority integer default null::integer, flags text[] default null::text[],
  job_key_mode text default 'replace'::text
) returns {schema}._private_jobs language plpgsql as $$ begin return null; end $$"""


def found() -> dict[str, str]:
    messages = checks.run_checks(tags=["graphile_worker"], databases=["default"])
    return {str(message.id).partition(".")[2]: f"{message.msg} {message.hint}" for message in messages}


def break_schema() -> None:
    execute("insert into {schema}.migrations (id, breaking) values (21, true)")


def come_from_rust() -> None:
    execute("insert into {schema}.migrations (id) values (21), (22)")
    execute(RUST_ADD_JOB)


@pytest.mark.django_db
class TestABreakingMigration:
    def test_check__says_it(self) -> None:
        assert found() == {}
        break_schema()
        assert SENTENCE in found()["E018"]

    def test_add__refuses_and_adds_nothing(self) -> None:
        break_schema()
        with pytest.raises(CommandError, match=re.escape(SENTENCE)):
            operate("add", "task")
        assert execute("select count(*) from {schema}._private_jobs") == [(0,)]

    def test_status__says_it(self) -> None:
        assert SENTENCE not in operate("status").out
        break_schema()
        assert SENTENCE in operate("status").out
        assert SENTENCE in operate("status", "--json").json["problems"][0]
        with pytest.raises(CommandError, match=re.escape(SENTENCE)):
            operate("status", "--check", "--min-workers", "0")

    def test_a_newer_ledger_that_breaks_nothing__is_no_problem(self) -> None:
        execute("insert into {schema}.migrations (id) values (21)")
        assert found() == {}
        operate("add", "task")
        assert operate("status", "--json").json["problems"] == ["0 workers alive instead of 1"]

    def test_add__by_a_role_that_may_not_read_the_ledger(self, worker_schema: str) -> None:
        script = operate("grants", "adding_role").out
        execute("create role adding_role")
        execute(script)
        execute("set local role adding_role")
        operate("add", "task")


@pytest.mark.django_db(transaction=True)
class TestAWorkerFromCode:
    @pytest.fixture(autouse=True)
    def _ledger_as_it_was(self) -> object:
        yield
        execute("delete from {schema}.migrations where id > 20")

    def test_stops_by_itself(self, wait_until: Callable[..., None]) -> None:
        worker = Worker(concurrency=1)
        worker.start()
        break_schema()

        def is_stopped_by_notification() -> bool:
            # The worker may not have listened to the one before.
            execute("select pg_notify('worker:migrate', '{}')")
            return not worker.is_running

        wait_until(is_stopped_by_notification)
        wait_until(lambda: execute("select count(*) from {schema}._private_workers") == [(0,)])

    def test_does_not_start(self) -> None:
        break_schema()
        with pytest.raises(BreakingMigrationError, match=re.escape(SENTENCE)):
            Worker(concurrency=1).start()
        assert issubclass(BreakingMigrationError, SchemaError)


@pytest.mark.django_db
class TestFunctionsOfAnotherProgram:
    def test_check__names_them_and_the_ledger(self) -> None:
        come_from_rust()
        message = found()["E019"]
        assert "those of another program: add_job." in message
        assert "has reached 22, which is beyond 20: graphile_worker for Rust (0.14)" in message
        assert 'Run "manage.py graphile_worker repair"' in message

    def test_status__names_them(self) -> None:
        come_from_rust()
        assert (
            "add_job of another program (manage.py graphile_worker repair restores the functions of this package)"
            in operate("status").out
        )

    def test_adding__says_what_helps(self) -> None:
        come_from_rust()
        with pytest.raises(SchemaError, match=r'run "manage\.py graphile_worker repair"'):
            add_job("task", job_key="key")
        with pytest.raises(SchemaError, match=r'run "manage\.py graphile_worker repair"'):
            add_job("task")

    def test_repair__puts_them_back_and_says_so(self) -> None:
        come_from_rust()
        assert operate("repair").out == "Restored: add_job.\n"
        assert found() == {}
        add_job("task", job_key="key")
        assert operate("repair").out == "Nothing to repair.\n"

    @pytest.mark.parametrize(
        "signature",
        [
            "(identifier text, payload json, queue_name text default null)",
            "(identifier text, payload jsonb default null)",
            "(identifier text, payload json default null, extra text default null)",
        ],
    )
    def test_repair__drops_functions_that_make_calls_ambiguous(self, signature: str) -> None:
        execute(f"create function {{schema}}.add_job{signature} returns void language sql as $$ select $$")
        assert "those of another program: add_job." in found()["E019"]
        said = operate("repair").out
        assert said.startswith("Dropped: add_job(identifier text, payload json")
        assert found() == {}
        add_job("task", {"n": 1}, job_key="key")

    def test_repair__replaces_what_cannot_be_replaced_in_place(self) -> None:
        execute("drop function {schema}.remove_job(text)")
        execute("create function {schema}.remove_job(other_name text) returns void language sql as $$ select $$")
        execute("drop function {schema}.complete_jobs(bigint[])")
        said = operate("repair", "--json").json
        assert said == {"restored": ["complete_jobs", "remove_job"], "dropped": [], "built": []}
        assert found() == {}
        assert operate("repair", "--json").json == {"restored": [], "dropped": [], "built": []}

    def test_repair__says_what_depends_on_a_function_that_must_go(self) -> None:
        execute("create function {schema}.add_job(wrong integer) returns integer language sql as $$ select 1 $$")
        execute("create view {schema}.theirs as select {schema}.add_job(1)")
        with pytest.raises(CommandError, match=r"cannot be dropped: .*view .*Drop the dependent objects first"):
            operate("repair")

    def test_repair__refuses_a_schema_that_is_too_new(self) -> None:
        break_schema()
        come_from = RUST_ADD_JOB
        execute(come_from)
        with pytest.raises(CommandError, match=re.escape(SENTENCE)):
            operate("repair")

    def test_repair__builds_indexes_that_are_missing_or_incomplete(self) -> None:
        execute("drop index {schema}.jobs_queued_index")
        execute("update pg_index set indisvalid = false where indexrelid = '{schema}.jobs_locked_index'::regclass")
        assert "repair" in found()["W005"]
        assert operate("repair").out == "Built: jobs_queued_index, jobs_locked_index.\n"
        assert found() == {}
