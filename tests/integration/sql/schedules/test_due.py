"""What reading the due schedules costs: it does not depend on how many schedules there are."""

from __future__ import annotations

from collections.abc import Callable

from django_graphile_worker.sql.control import read_control
from django_graphile_worker.sql.schedules.due import read_due
from tests.conftest import RawConnection
from tests.support.buffers import MeasuringCursor
from tests.support.schedule_world import MINUTE, NOON, ScheduleWorld


def test_reading_what_is_due__walks_the_index(versioned_connection: RawConnection, worker_schema: str) -> None:
    world = ScheduleWorld(lambda **options: versioned_connection, worker_schema, NOON)
    world.execute(
        "insert into :S._private_schedules (name, task, cron, is_enabled)"
        " select 'tenant ' || number, 'report', '0 4 * * *', number %% 2 = 0 from generate_series(1, 10000) as number"
    )
    world.execute(
        "update :S._private_schedules set next_at = %s::timestamptz + id * interval '1 second'"
        " where next_at = '-infinity'",
        NOON,
    )
    world.execute("analyze :S._private_schedules")
    cursor = MeasuringCursor(versioned_connection)
    due = read_due(cursor, schema=worker_schema, most=2000, now=NOON)
    assert (due.schedules, due.next_at is not None) == ((), True)
    assert cursor.buffers < 20
    due = read_due(cursor, schema=worker_schema, most=2000, unknown_tasks=["other"], now=NOON + MINUTE)
    assert (len(due.schedules), cursor.buffers < 60) == (30, True)
    control = read_control(cursor, "worker", schema=worker_schema, now=NOON)
    assert control.until_schedule == 2.0
    assert cursor.buffers < 20


def test_schedules_that_failed__are_left_out_until_they_are_changed(
    raw_connection: Callable[..., RawConnection], worker_schema: str
) -> None:
    world = ScheduleWorld(raw_connection, worker_schema, NOON)
    id_ = world.add("broken", cron="x")
    with world.connection.cursor() as cursor:
        assert read_due(cursor, schema=worker_schema, most=9, failing={id_: 0}, now=NOON).schedules == ()
        world.execute("update :S._private_schedules set cron = '* * * * *'")
        (due,) = read_due(cursor, schema=worker_schema, most=9, failing={id_: 0}, now=NOON).schedules
        assert (due.next_at, due.revision) == (None, 1)


def test_schedules_of_unknown_tasks__are_left_out_for_a_minute(
    raw_connection: Callable[..., RawConnection], worker_schema: str
) -> None:
    world = ScheduleWorld(raw_connection, worker_schema, NOON)
    world.add("foreign", cron="* * * * *")
    world.execute("update :S._private_schedules set next_at = %s", NOON)
    with world.connection.cursor() as cursor:
        for minutes, number in ((0, 0), (0.9, 0), (1, 1)):
            now = NOON + minutes * MINUTE
            due = read_due(cursor, schema=worker_schema, most=9, unknown_tasks=["report"], now=now)
            assert len(due.schedules) == number
