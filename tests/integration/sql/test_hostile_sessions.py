"""Nothing that a session, a role or another user can set changes what the functions do."""
# ruff: noqa: E501 - the traps are SQL, a line each

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from tests.support.worker_sql import Row, WorkerSql

SETTINGS = [
    {"search_path": ""},
    {"standard_conforming_strings": "off"},
    {"timezone": "Asia/Kathmandu", "datestyle": "German, DMY", "intervalstyle": "sql_standard"},
    {"extra_float_digits": "-15"},
    {"plpgsql.variable_conflict": "use_column"},
    {"plan_cache_mode": "force_generic_plan"},
    {"plan_cache_mode": "force_custom_plan"},
    {"xmlbinary": "hex", "bytea_output": "escape", "array_nulls": "off"},
    {"transform_null_equals": "on"},
    {"enable_hashjoin": "off", "enable_nestloop": "off", "enable_sort": "off"},
    {"work_mem": "64kB"},
]

# A role that may create objects in a schema on another role's search_path could have them called.
TRAPS = """
create schema trap;
create function trap.tripped() returns void language plpgsql as $$ begin raise exception 'The trap was sprung.'; end $$;
create function trap.now() returns timestamptz language sql as 'select trap.tripped(); select null::timestamptz';
create function trap.random() returns float8 language sql as 'select trap.tripped(); select 0.0::float8';
create function trap.length(text) returns integer language sql as 'select trap.tripped(); select 0';
create function trap.clock_timestamp() returns timestamptz language sql as 'select trap.tripped(); select null::timestamptz';
create function trap.hashtext(text) returns integer language sql as 'select trap.tripped(); select 0';
create function trap.pg_notify(text, text) returns void language sql as 'select trap.tripped()';
create function trap.json_typeof(json) returns text language sql as 'select trap.tripped(); select null::text';
create function trap.current_setting(text, boolean) returns text language sql as 'select trap.tripped(); select null::text';
create function trap.current_setting(text) returns text language sql as 'select trap.tripped(); select null::text';
create function trap.pg_advisory_xact_lock_shared(integer, integer) returns void language sql as 'select trap.tripped()';
create function trap.same(text, text) returns boolean language sql as 'select trap.tripped(); select true';
create function trap.same(bigint, bigint) returns boolean language sql as 'select trap.tripped(); select true';
create function trap.before(timestamptz, timestamptz) returns boolean language sql as 'select trap.tripped(); select true';
create operator trap.= (function = trap.same, leftarg = text, rightarg = text);
create operator trap.= (function = trap.same, leftarg = bigint, rightarg = bigint);
create operator trap.<= (function = trap.before, leftarg = timestamptz, rightarg = timestamptz);
create operator trap.< (function = trap.before, leftarg = timestamptz, rightarg = timestamptz);
create domain trap.json as pg_catalog.text;
create domain trap.jsonb as pg_catalog.text;
create domain trap.text as pg_catalog.int4;
create table trap._private_jobs (id bigint);
create table trap._private_tasks (id bigint);
"""


def use_everything(worker: WorkerSql) -> list[Row]:
    """Call each function in each of its ways; all that is left of it."""
    worker.add_job("task", payload="[1]", queue_name="queue", flags=["flag"])
    for mode in ("replace", "preserve_run_at", "unsafe_dedupe"):
        worker.add_job("task", payload="[1]", job_key="key", job_key_mode=mode)
    worker.add_jobs({"job_key": "key", "payload": "[2]"}, {"job_key": "b"}, {"job_key": "b"}, {"queue_name": "queue"})
    worker.lock(worker.add_job("task", job_key="running")["id"])
    worker.add_job("task", job_key="running")
    worker.add_job("task", job_key="gone")
    worker.call("remove_job", job_key="gone")
    ids = [job["id"] for job in worker.jobs()]
    worker.call("reschedule_jobs", job_ids=ids[:2], priority=1, run_at="2099-01-01 00:00:00Z")
    worker.call("permanently_fail_jobs", job_ids=ids[2:3])
    worker.call("complete_jobs", job_ids=ids[3:4])
    worker.call("force_unlock_workers", worker_ids=["worker"])
    return [{key: value for key, value in job.items() if not key.endswith("_at")} for job in worker.jobs()]


def renumbered(jobs: list[Row]) -> list[Row]:
    """The jobs without the ids that sequences gave out."""
    return [{key: value for key, value in job.items() if not key.endswith("id")} for job in jobs]


@pytest.fixture
def expected(worker: WorkerSql) -> list[Row]:
    with worker.connection.transaction(force_rollback=True):
        return renumbered(use_everything(worker))


@pytest.mark.parametrize("options", SETTINGS, ids=lambda options: ", ".join(options))
def test_no_setting_changes_what_they_do(worker: WorkerSql, expected: list[Row], options: dict[str, str]) -> None:
    for name, value in options.items():
        worker.query("select set_config(%s, %s, true)", name, value)
    worker = replace(worker, is_binary=True)

    # Often enough for PostgreSQL to choose a plan without the parameters' values.
    for _ in range(7):
        with worker.connection.transaction(force_rollback=True):
            assert renumbered(use_everything(worker)) == expected


@pytest.mark.django_db(transaction=True)
def test_a_hostile_search_path_changes_nothing(committing_worker: Callable[..., WorkerSql], database_url: str) -> None:
    # A session of its own, whose functions were never planned under another path.
    with psycopg.connect(database_url, autocommit=True, options="-c search_path=trap,pg_catalog") as connection:
        worker = WorkerSql(connection, committing_worker().schema)
        with connection.transaction(force_rollback=True):
            worker.query(TRAPS.replace("text, text)", "pg_catalog.text, pg_catalog.text)"))
            statements = (
                "select id from {schema}.add_job('task', '[1]', 'queue', null, null, null, 1, '{flag}')",
                "select id from {schema}.add_job('task', '[1]', job_key := 'key')",
                "select id from {schema}.add_job('task', '[2]', job_key := 'key', job_key_mode := 'preserve_run_at')",
                "select id from {schema}.add_job('task', job_key := 'key', job_key_mode := 'unsafe_dedupe')",
                "select id from {schema}.add_jobs(array[('task','[1]','q',null,null,'key',null,null)]::{schema}.job_spec[])",
                "select id from {schema}.add_jobs(array[('task',null,'q',null,null,null,null,'{f}')]::{schema}.job_spec[])",
                "select id from {schema}.reschedule_jobs(array(select id from {schema}._private_jobs), now())".replace(
                    "now()", "pg_catalog.now()"
                ),
                "select id from {schema}.permanently_fail_jobs(array(select id from {schema}._private_jobs))",
                "select {schema}.force_unlock_workers('{a}')",
                "select id from {schema}.remove_job('key')",
                "select id from {schema}.complete_jobs(array(select id from {schema}._private_jobs))",
            )
            results = [worker.query(statement) for statement in statements]
            assert all(results)
            assert worker.jobs() == []


def test_only_functions_for_roles_run_with_their_owners_rights__and_only_with_a_grant(worker: WorkerSql) -> None:
    rows = worker.query(
        "select proname, prosecdef, has_function_privilege('public', oid, 'execute') as is_public from pg_proc"
        " where pronamespace = (select oid from pg_namespace where nspname = %s)",
        worker.schema,
    )

    lending = {row["proname"]: row["is_public"] for row in rows if row["prosecdef"]}
    names = ("_private_adder_add_job", "_private_adder_add_jobs")
    keyed = (*(name.replace("_adder", "_keyed_adder") for name in names), "_private_keyed_adder_add_unique_jobs")
    of_adders = (*names, *keyed)
    of_workers = (
        "_private_make_history_partitions",
        "_private_drop_history",
        "_private_index_history",
    )
    assert lending == dict.fromkeys((*of_adders, *of_workers), False)


def test_each_of_them_pins_its_path__or_names_the_schema_of_all_it_uses(worker: WorkerSql) -> None:
    """Functions that PostgreSQL inlines cannot have a setting of their own."""
    rows = worker.query(
        "select proname, prosrc, coalesce(proconfig, '{}') as proconfig from pg_proc"
        " where pronamespace = (select oid from pg_namespace where nspname = %s)",
        worker.schema,
    )

    assert len(rows) > 20
    unpinned = {
        row["proname"]: row["prosrc"] for row in rows if "search_path=pg_catalog, pg_temp" not in row["proconfig"]
    }
    assert {name: bare_names(text) for name, text in unpinned.items() if bare_names(text)} == {}


def bare_names(text: str) -> set[str]:
    """Functions, operators and types in an expression that do not say which schema they are of."""
    code = re.sub(r"'[^']*'|--[^\n]*|/\*.*?\*/|operator\(pg_catalog\.[^)]*\)", ",", text, flags=re.DOTALL)
    calls = re.findall(
        r"(?<![\w.\"])(?!(?:case|when|then|and|or|else|coalesce|all|any|select)\b)([a-z_]\w*)\s*\(", code
    )
    # ":=" assigns; no operator can have this name.
    operators = re.findall(r"[-+*/<>=~!@#^&|?%]+(?!\d)", code.replace(":=", ","))
    casts = re.findall(r"::\s*(?!pg_catalog\.|bigint\b|integer\b|double precision\b)(\w+)", code)
    return {*calls, *operators, *casts}
