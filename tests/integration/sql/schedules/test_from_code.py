"""Items of the crontab: their rows, and their ticks, each of which is fired once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.sql.schedules import from_code, runs
from django_graphile_worker.sql.schedules.runs import RunOutcome
from tests.conftest import RawConnection
from tests.support.crontab_ticks import fire_ticks

TICK = datetime(2026, 11, 15, 4, 30, tzinfo=UTC)
LATER = TICK + timedelta(seconds=1)


@pytest.fixture
def cursor(raw_connection: Callable[..., RawConnection]) -> Iterator[psycopg.Cursor[Any]]:
    with raw_connection().cursor() as opened:
        yield opened


def test_registering_keeps_what_is_known(cursor: psycopg.Cursor[Any], worker_schema: str) -> None:
    from_code.register(cursor, ["a"], schema=worker_schema, since=TICK)
    from_code.register(cursor, ["b", "a"], schema=worker_schema, since=LATER)
    assert from_code.known_crontabs(cursor, schema=worker_schema) == {
        "a": from_code.KnownCrontab(identifier="a", known_since=TICK, last_execution=None),
        "b": from_code.KnownCrontab(identifier="b", known_since=LATER, last_execution=None),
    }


def test_times_beyond_pythons_years_are_read_as_the_last_that_python_has(
    cursor: psycopg.Cursor[Any], worker_schema: str
) -> None:
    """An infinite last_execution is how an operator stops an item for ever."""
    cursor.execute(
        f"""insert into "{worker_schema}"._private_known_crontabs values ('report', '-infinity', 'infinity')""".encode()
    )
    known = from_code.known_crontabs(cursor, schema=worker_schema)["report"]
    assert known.last_execution is not None
    assert (known.known_since.year, known.last_execution.year) == (1, 9999)
    item = CronItem("report", "30 4 * * *")
    assert not fire_ticks(cursor, [item], TICK, schema=worker_schema, now=LATER)


MINUTE = timedelta(minutes=1)
ITEM = CronItem("report", "30 4 * * *")


@pytest.fixture
def jobs(cursor: psycopg.Cursor[Any], worker_schema: str) -> Callable[[], list[dict[str, Any]]]:
    def fetch() -> list[dict[str, Any]]:
        cursor.execute(
            f"""select row_to_json(job) from (
                select tasks.identifier as task, jobs.payload, jobs.run_at, jobs.priority, jobs.max_attempts,
                    jobs.key, jobs.flags, queues.queue_name
                from "{worker_schema}"._private_jobs as jobs
                join "{worker_schema}"._private_tasks as tasks on tasks.id = jobs.task_id
                left join "{worker_schema}"._private_job_queues as queues on queues.id = jobs.job_queue_id
                order by jobs.id) as job""".encode()
        )
        return [row[0] for row in cursor.fetchall()]

    return fetch


def test_a_tick_adds_a_job_with_everything_the_item_says(
    cursor: psycopg.Cursor[Any], worker_schema: str, jobs: Callable[[], list[dict[str, Any]]]
) -> None:
    item = CronItem(
        "report",
        "30 4 * * *",
        payload={"list": [1, "ü\u2028"], "_cron": "overwritten"},
        identifier="nightly",
        max_attempts=3,
        queue_name="reports",
        priority=-5,
        job_key="report-key",
        job_key_mode="preserve_run_at",
        flags=("slow",),
    )
    fired = fire_ticks(cursor, [item, CronItem("bare", "* * * * *")], TICK, schema=worker_schema, now=LATER)
    assert list(fired) == ["nightly", "bare"]
    first, second = jobs()
    assert datetime.fromisoformat(first.pop("run_at")) == TICK
    assert first == {
        "task": "report",
        "payload": {"list": [1, "ü\u2028"], "_cron": {"ts": "2026-11-15T04:30:00.000Z", "backfilled": False}},
        "priority": -5,
        "max_attempts": 3,
        "key": "report-key",
        "flags": {"slow": True, "crontab:2089800": True},
        "queue_name": "reports",
    }
    assert (second["task"], second["priority"], second["max_attempts"]) == ("bare", 0, 25)
    assert second["flags"] == {"crontab:3600": True}
    assert second["payload"] == {"_cron": {"ts": "2026-11-15T04:30:00.000Z", "backfilled": False}}
    known = from_code.known_crontabs(cursor, schema=worker_schema)
    assert known["nightly"] == from_code.KnownCrontab(identifier="nightly", known_since=TICK, last_execution=TICK)


def test_a_tick_notes_a_run_of_each_item(cursor: psycopg.Cursor[Any], worker_schema: str) -> None:
    other = CronItem("other", "* * * * *", backfill_period=timedelta(hours=1))
    fired = fire_ticks(cursor, [ITEM, other], TICK, schema=worker_schema, now=LATER)
    late, on_time = TICK + MINUTE, TICK + 2 * MINUTE
    now = on_time + timedelta(seconds=1)
    assert fire_ticks(cursor, [other], late, on_time, schema=worker_schema, now=now, late_before=on_time)
    found = runs.runs_of_crontabs(cursor, ["report", "other"], schema=worker_schema)
    assert [(run.tick, run.kind, run.outcome, run.job_id) for run in found["report"]] == [
        (TICK, "on_time", RunOutcome.WAITING, *fired["report"])
    ]
    assert [(run.tick, run.kind) for run in found["other"]] == [(on_time, "on_time"), (late, "late"), (TICK, "on_time")]
    assert len({run.job_id for run in found["other"]}) == 3
    # No job, no run.
    fire_ticks(cursor, [ITEM, other], TICK, schema=worker_schema, now=LATER)
    assert runs.runs_of_crontabs(cursor, ["report", "other"], schema=worker_schema) == found


def test_a_tick_fires_once_however_often_it_is_asked_for(
    cursor: psycopg.Cursor[Any], worker_schema: str, jobs: Callable[[], list[dict[str, Any]]]
) -> None:
    assert fire_ticks(cursor, [ITEM], TICK, schema=worker_schema, now=LATER)
    for tick in (TICK, TICK - MINUTE):
        assert fire_ticks(cursor, [ITEM], tick, schema=worker_schema, now=LATER) == {}
    assert fire_ticks(cursor, [ITEM], TICK + MINUTE, schema=worker_schema, now=LATER + MINUTE)
    assert len(jobs()) == 2


def test_a_tick_in_the_databases_future_is_not_fired(
    cursor: psycopg.Cursor[Any], worker_schema: str, jobs: Callable[[], list[dict[str, Any]]]
) -> None:
    tomorrow = from_code.database_now(cursor) + timedelta(days=1)
    from_code.register(cursor, [ITEM.name], schema=worker_schema)
    assert fire_ticks(cursor, [ITEM], tomorrow, schema=worker_schema) == {}
    assert fire_ticks(cursor, [ITEM], from_code.database_now(cursor), tomorrow, schema=worker_schema) == {}
    assert from_code.known_crontabs(cursor, schema=worker_schema)["report"].last_execution is None
    assert jobs() == []


def test_a_new_item_does_not_fire_for_ticks_before_it_was_known(
    cursor: psycopg.Cursor[Any], worker_schema: str
) -> None:
    from_code.register(cursor, [ITEM.name], schema=worker_schema, since=LATER)
    assert not fire_ticks(cursor, [ITEM], TICK, schema=worker_schema, now=LATER)
    assert fire_ticks(cursor, [ITEM], TICK + MINUTE, schema=worker_schema, now=LATER + MINUTE)


def test_a_series_of_missed_ticks_is_added_in_order(
    cursor: psycopg.Cursor[Any], worker_schema: str, jobs: Callable[[], list[dict[str, Any]]]
) -> None:
    fire_ticks(cursor, [ITEM], TICK, schema=worker_schema, now=LATER)
    ticks = [TICK + MINUTE * count for count in range(1, 6)]
    now = ticks[-1] + timedelta(seconds=5)
    assert fire_ticks(cursor, [ITEM], *ticks, schema=worker_schema, now=now, late_before=ticks[-1])
    marks = [(job["payload"]["_cron"]["ts"], job["payload"]["_cron"]["backfilled"]) for job in jobs()[1:]]
    assert marks == [(tick.strftime("%Y-%m-%dT%H:%M:00.000Z"), tick < ticks[-1]) for tick in ticks]
    assert from_code.known_crontabs(cursor, schema=worker_schema)["report"].last_execution == ticks[-1]


@pytest.mark.parametrize("first", [TICK, TICK - MINUTE])
def test_a_series_is_refused_when_another_worker_fired_one_of_its_ticks_meanwhile(
    cursor: psycopg.Cursor[Any], worker_schema: str, jobs: Callable[[], list[dict[str, Any]]], first: datetime
) -> None:
    fire_ticks(cursor, [ITEM], TICK, schema=worker_schema, now=LATER)
    now = TICK + 3 * MINUTE
    assert not fire_ticks(cursor, [ITEM], first, TICK + 2 * MINUTE, schema=worker_schema, now=now)
    assert len(jobs()) == 1


def test_two_sessions_at_the_same_instant_fire_a_tick_once(
    raw_connection: Callable[..., RawConnection],
    worker_schema: str,
    jobs: Callable[[], list[dict[str, Any]]],
) -> None:
    items = [CronItem(f"task{number}", "* * * * *") for number in range(20)]
    connections = [raw_connection() for _ in range(4)]
    # Sessions that make items known wait for each other for a short time only.
    from_code.register(connections[0].cursor(), [item.task for item in items], schema=worker_schema, since=TICK)
    start = threading.Barrier(len(connections))
    won: list[str] = []

    def fire(connection: RawConnection, mine: list[CronItem]) -> None:
        with connection.cursor() as cursor:
            start.wait(60)
            for count in range(10):
                tick = TICK + MINUTE * count
                won.extend(fire_ticks(cursor, mine, tick, schema=worker_schema, now=tick))

    threads = [
        # In different orders: sessions that lock the same rows must not wait for each other in a circle.
        threading.Thread(target=fire, args=(connection, items[:: (-1) ** number]))
        for number, connection in enumerate(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    # A slower session may find a later tick fired already, and then fires no earlier tick: at most one job each.
    fired = [(job["task"], job["payload"]["_cron"]["ts"]) for job in jobs()]
    assert len(fired) == len(set(fired)) == len(won)
    assert {task for task, _ in fired} == {item.task for item in items}


def test_a_session_that_dies_before_its_commit_leaves_the_tick_to_the_next(
    raw_connection: Callable[..., RawConnection],
    worker_schema: str,
    jobs: Callable[[], list[dict[str, Any]]],
) -> None:
    doomed = raw_connection(autocommit=False)
    with doomed.cursor() as cursor:
        assert fire_ticks(cursor, [ITEM], TICK, schema=worker_schema, now=LATER)
    doomed.close()
    with raw_connection().cursor() as cursor:
        assert fire_ticks(cursor, [ITEM], TICK, schema=worker_schema, now=LATER)
    assert len(jobs()) == 1


def test_hostile_session_settings_change_nothing(
    raw_connection: Callable[..., RawConnection],
    worker_schema: str,
    jobs: Callable[[], list[dict[str, Any]]],
) -> None:
    hostile = (
        "timezone=Asia/Kathmandu",
        "datestyle=German",
        "search_path=",
        "default_transaction_isolation=serializable",
    )
    connection = raw_connection(options=" ".join(f"-c {setting}" for setting in hostile))
    with connection.cursor() as cursor:
        assert fire_ticks(cursor, [ITEM], TICK, schema=worker_schema, now=LATER)
        assert from_code.known_crontabs(cursor, schema=worker_schema)["report"].last_execution == TICK
    assert datetime.fromisoformat(jobs()[0]["run_at"]) == TICK
