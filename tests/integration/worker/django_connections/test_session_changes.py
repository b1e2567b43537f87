"""What a job changes in its session never reaches the next job."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.signals import connection_created

from django_graphile_worker.worker.outcomes import Failed, Succeeded
from tests.support.backends import Pids, execute
from tests.support.slot import Slot, open_slot

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SET statement_timeout = 12345", "setting statement_timeout = 12345"),
        ("SET statement_timeout = 1", "statement"),
        ("SET TIME ZONE 'Asia/Tokyo'", "setting TimeZone = Asia/Tokyo"),
        ("SELECT set_config('shop.tenant', '7', false)", "setting shop.tenant = 7"),
        ("SET shop.tenant = '7'", "setting shop.tenant = 7"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "default_transaction_read_only = on"),
        ("SET ROLE pg_monitor", "setting role = pg_monitor"),
        ("LISTEN news", "channel listened to news"),
        ("SELECT pg_advisory_lock(7)", "advisory lock 0/7/1"),
        ("CREATE TEMP TABLE left_over (a int)", "temporary table left_over"),
        ("PREPARE left_over AS SELECT 1", "prepared statement left_over"),
        ("DECLARE left_over CURSOR WITH HOLD FOR SELECT 1", "open cursor left_over"),
        ("DO $$ begin set work_mem = '1MB'; end $$", "setting work_mem = 1024"),
    ],
)
@pytest.mark.parametrize("leftover_state", ["warn", "fail"])
def test_changed_session__never_reaches_the_next_job_and_fails_its_own_only_if_asked(
    leftovers: list[str], statement: str, reason: str, leftover_state: str
) -> None:
    pids = Pids()
    with open_slot(leftover_state=leftover_state) as slot:
        slot.run(pids)
        outcome = slot.run(lambda payload: execute(statement))
        if leftover_state == "fail":
            assert isinstance(outcome, Failed)
            assert "LeftoverStateError" in outcome.error
            assert reason in outcome.error
            assert leftovers == []
        else:
            assert isinstance(outcome, Succeeded), "what it did is committed: a second run would do it twice"
            assert reason in leftovers.pop()
        assert isinstance(slot.run(pids), Succeeded)
    assert pids.seen[0] != pids.seen[1]


def test_changed_session__is_logged(slot: Slot, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="django_graphile_worker.jobs"):
        slot.run(lambda payload: execute("SET statement_timeout = 12345"))
    (record,) = caplog.records
    assert "a_task #1 succeeded, but left the state of its connections changed" in record.getMessage()
    assert "setting statement_timeout = 12345" in record.getMessage()


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize(
    "statement",
    [
        "SET LOCAL statement_timeout = 12345",
        "SELECT set_config('shop.tenant', '7', true)",
        "SELECT set_config('shop.' || 'tenant', '7', 1 = 1)",
        "SELECT pg_advisory_xact_lock(7)",
        "CREATE TEMP TABLE gone (a int) ON COMMIT DROP",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "DECLARE gone CURSOR FOR SELECT 1",
        "DO $$ begin end $$",
    ],
)
def test_what_ends_with_its_transaction__is_no_leftover(slot: Slot, statement: str) -> None:
    def careful(payload: Any) -> None:
        with transaction.atomic():
            execute(statement)

    pids = Pids()
    for _ in range(2):
        slot.run(pids)
        assert isinstance(slot.run(careful), Succeeded)
    slot.run(pids)
    # The first statement that may change the session may cost a new connection, to read the state of a new session.
    assert len(set(pids.seen[1:])) == 1


@pytest.mark.usefixtures("persistent")
def test_setting_named_by_a_parameter__is_seen(slot: Slot, leftovers: list[str]) -> None:
    def careless(payload: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config(%s, %s, %s)", ["shop.tenant", "7", False])

    assert isinstance(slot.run(careless), Succeeded)
    assert "setting shop.tenant = 7" in leftovers.pop()


@pytest.mark.usefixtures("persistent")
def test_what_is_undone__is_no_leftover(slot: Slot) -> None:
    def careful(payload: Any) -> None:
        execute("SET statement_timeout = 12345")
        execute("RESET statement_timeout")
        execute("SELECT pg_advisory_lock(7)")
        execute("SELECT pg_advisory_unlock(7)")

    assert isinstance(slot.run(careful), Succeeded)


@pytest.mark.usefixtures("persistent")
def test_settings_of_every_new_connection__are_no_leftover(slot: Slot, leftovers: list[str]) -> None:
    def set_up(*, connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 54321")

    def careful(payload: Any) -> None:
        with transaction.atomic():
            execute("SELECT set_config('shop.' || 'tenant', '7', 1 = 1)")

    def careless(payload: Any) -> None:
        execute("SET statement_timeout = 12345")

    connection_created.connect(set_up)
    try:
        slot.executor.start()
        assert isinstance(slot.run(careful), Succeeded)
        assert isinstance(slot.run(careful), Succeeded)
        assert leftovers == []
        assert isinstance(slot.run(careless), Succeeded)
        assert "setting statement_timeout = 12345" in leftovers.pop()
        assert isinstance(slot.run(careful), Succeeded)
    finally:
        connection_created.disconnect(set_up)


@pytest.mark.usefixtures("persistent")
def test_cursor_left_open__is_seen(slot: Slot, leftovers: list[str]) -> None:
    kept: list[Any] = []

    def leaks(payload: Any) -> None:
        cursor = connection.chunked_cursor()
        cursor.execute("select generate_series(1, 100)")
        cursor.fetchone()
        kept.append(cursor)

    def careful(payload: Any) -> None:
        with connection.chunked_cursor() as cursor:
            cursor.execute("select generate_series(1, 100)")
            cursor.fetchone()

    assert isinstance(slot.run(leaks), Succeeded)
    assert "open cursor _django_curs" in leftovers.pop()
    pids = Pids()
    slot.run(pids)
    assert isinstance(slot.run(careful), Succeeded)
    slot.run(pids)
    assert len(set(pids.seen)) == 1
    slot.call(lambda: kept.pop().close())
