"""Sessions that functions and triggers of the database change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_graphile_worker.worker.django_connections import lifecycle
from django_graphile_worker.worker.django_connections.session_changes import SessionChanges
from django_graphile_worker.worker.outcomes import Succeeded
from tests.conftest import RawConnection
from tests.support.backends import Pids, execute
from tests.support.slot import Slot

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def function_in_database(
    raw_connection: Callable[..., RawConnection], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """Execute DDL, and undo it at the end of the test."""
    # Forget the functions of an earlier test: these have the same names and other bodies.
    monkeypatch.setattr(SessionChanges, "_functions", {})
    admin = raw_connection()

    def create(statement: str) -> None:
        admin.execute(statement)

    yield create
    admin.execute("drop table if exists public.leaky_table")
    admin.execute("drop function if exists public.leaky, public.leaky_too, public.leaky_trigger")


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("perform set_config('search_path', 'nowhere', false);", "setting search_path = nowhere"),
        ("set statement_timeout = 12345;", "setting statement_timeout = 12345"),
        ("perform set_config('shop.tenant', '7', false);", "setting shop.tenant = 7"),
        ("perform pg_advisory_lock(7);", "advisory lock 0/7/1"),
        ("execute 'set work_mem = ''1MB''';", "setting work_mem = 1024"),
        ("perform public.leaky_too();", "setting shop.tenant = 8"),
    ],
)
def test_session_changed_inside_a_function__is_noticed(
    slot: Slot, function_in_database: Callable[[str], None], leftovers: list[str], body: str, reason: str
) -> None:
    function_in_database(
        "create function public.leaky_too() returns void language sql as "
        "$$ select set_config('shop.tenant', '8', false) $$;"
        f"create function public.leaky() returns int language plpgsql as $$ begin {body} return 1; end $$"
    )
    pids = Pids()
    slot.run(pids)
    assert isinstance(slot.run(lambda payload: execute("SELECT public.leaky()")), Succeeded)
    assert reason in leftovers.pop()
    assert isinstance(slot.run(pids), Succeeded)
    assert pids.seen[0] != pids.seen[1]


@pytest.mark.usefixtures("persistent")
def test_session_changed_by_a_trigger__is_noticed(
    slot: Slot, function_in_database: Callable[[str], None], leftovers: list[str]
) -> None:
    function_in_database(
        "create table public.leaky_table (a int);"
        "create function public.leaky_trigger() returns trigger language plpgsql as "
        "$$ begin set work_mem = '1MB'; return new; end $$;"
        "create trigger leaky before insert on public.leaky_table for each row execute function public.leaky_trigger()"
    )
    assert isinstance(slot.run(lambda payload: execute("INSERT INTO public.leaky_table VALUES (1)")), Succeeded)
    assert "setting work_mem = 1024" in leftovers.pop()


@pytest.mark.usefixtures("persistent")
def test_jobs_that_call_nothing_that_changes_sessions__cost_no_statement_more(
    slot: Slot, function_in_database: Callable[[str], None]
) -> None:
    function_in_database(
        "create table public.leaky_table (a int);"
        "create function public.leaky() returns int language plpgsql as $$ declare n int; begin "
        "update public.leaky_table set a = 1; select count(*) into n from public.leaky_table; return n; end $$;"
        "create function public.leaky_trigger() returns trigger language plpgsql as "
        "$$ begin new.a = new.a + public.leaky(); set local work_mem = '1MB'; return new; end $$;"
        "create trigger leaky before insert on public.leaky_table for each row execute function public.leaky_trigger()"
    )

    def usual(payload: Any) -> None:
        execute("SELECT public.leaky()")
        execute("INSERT INTO public.leaky_table VALUES (1)")
        execute("SELECT count(*), lower('A'), (SELECT max(oid) FROM pg_class WHERE relname IN ('a')) FROM pg_class")
        execute("SELECT jsonb_build_object('a', 1)")

    def statements() -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            usual({})
            lifecycle.end()
        return [query["sql"] for query in captured.captured_queries]

    slot.run(usual)
    assert len(slot.call(statements)) == 4
