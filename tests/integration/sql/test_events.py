"""The event log: what is written with which change, how often, and what is deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

import django_graphile_worker as gw
from django_graphile_worker.api.limits import override_limit, reset_limit
from django_graphile_worker.limits import LimitNumbers
from django_graphile_worker.sql import control, events, recovery, workers
from django_graphile_worker.sql.control import PauseKind
from django_graphile_worker.sql.events import EventCriteria, LoggedEvent, NewEvent, alarms, find_events
from django_graphile_worker.sql.schedules import from_code
from tests.support.factories import make_job, make_queue, minutes_ago
from tests.support.operating import execute

pytestmark = pytest.mark.django_db

WORKER = "django-worker-1"
HOST = {"host": "web-1", "pid": 42, "version": "1", "concurrency": 3}


@pytest.fixture
def cursor() -> Any:
    with connection.cursor() as cursor:
        yield cursor


def found(*kinds: str) -> list[LoggedEvent]:
    with connection.cursor() as cursor:
        schema = execute("select '{schema}'::text")[0][0].strip('"')
        return find_events(cursor, EventCriteria(kinds=kinds or None), schema=schema, limit=100)


def facts(*kinds: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [(event.kind, event.subject, event.details) for event in reversed(found(*kinds))]


def register(cursor: Any, schema: str, worker_id: str = WORKER, *, silent: float = 0, **options: Any) -> None:
    now = datetime.now(UTC) - timedelta(seconds=silent)
    workers.register_worker(cursor, worker_id, HOST, schema=schema, now=now, timeout=60.0, heartbeat=10.0, **options)


def test_worker__stops_with_one_event(cursor: Any, worker_schema: str) -> None:
    register(cursor, worker_schema)
    workers.deregister_worker(cursor, WORKER, schema=worker_schema, reason="SIGTERM")
    workers.deregister_worker(cursor, WORKER, schema=worker_schema, reason="again")
    assert facts() == [("worker_stopped", "web-1", {"host": "web-1", "pid": 42, "reason": "SIGTERM"})]
    assert {event.worker_id for event in found()} == {WORKER}


def test_lost_worker__is_told_with_what_it_held_and_who_recovered(cursor: Any, worker_schema: str) -> None:
    register(cursor, worker_schema, silent=62)
    workers.register_worker(cursor, "django-worker-2", {"host": "web-2"}, schema=worker_schema)
    for _ in range(7):
        make_job("send", locked_by=f"{WORKER}/1", locked_at=minutes_ago(2))
    make_queue("eu", locked_by=f"{WORKER}/1", locked_at=minutes_ago(2))
    for _ in range(2):
        recovery.recover(cursor, schema=worker_schema, timeout=60.0, limit=5, by="django-worker-2")
    assert len(found("worker_lost")) == len(found("jobs_recovered")) == 1
    (lost,) = found("worker_lost")
    assert (lost.subject, lost.worker_id, lost.severity) == ("web-1", WORKER, events.ERROR)
    assert (lost.details["jobs"], lost.details["queues"], lost.details["by_host"]) == (7, 1, "web-2")
    assert 62 <= lost.details["silent_seconds"] < 120
    assert (
        lost.recovered == found("jobs_recovered")[0].details == {"jobs": 7, "by": "django-worker-2", "by_host": "web-2"}
    )


def test_many_lost_workers__are_removed_with_one_look_at_the_locked_jobs(cursor: Any, worker_schema: str) -> None:
    """If hundreds of workers are lost at once, a look for each of them would take longer than a statement may."""
    lost = [f"django-worker-{number}" for number in range(20)]
    for number, worker_id in enumerate(lost):
        register(cursor, worker_schema, worker_id, silent=62)
        make_job("send", locked_by=f"{worker_id}/1", locked_at=minutes_ago(2))
        make_queue(f"queue-{number}", locked_by=f"{worker_id}/1", locked_at=minutes_ago(2))
    late = recovery.read_fleet(cursor, schema=worker_schema, timeout=60.0, heartbeat=10.0).late
    before = scans(cursor)
    removed = recovery.remove_dead_workers(cursor, late, schema=worker_schema)
    after = scans(cursor)
    assert sorted(removed) == sorted(lost)
    assert {name: after[name] - before[name] for name in after} == {"_private_jobs": 1, "_private_job_queues": 1}
    held = [(event.details["jobs"], event.details["queues"]) for event in found("worker_lost")]
    assert (sum(jobs for jobs, _ in held), sum(queues for _, queues in held)) == (20, 20)


def scans(cursor: Any) -> dict[str, int]:
    """Return how often this transaction has scanned each table."""
    cursor.execute(
        "select relname, seq_scan + coalesce(idx_scan, 0) from pg_stat_xact_user_tables"
        " where relname in ('_private_jobs', '_private_job_queues')"
    )
    return dict(cursor.fetchall())


def test_rolled_back_recovery__leaves_no_event(cursor: Any, worker_schema: str) -> None:
    register(cursor, worker_schema, silent=62)
    with transaction.atomic():
        recovery.recover(cursor, schema=worker_schema, timeout=60.0)
        transaction.set_rollback(True)
    assert facts("worker_lost") == []


def test_stale_locks__are_one_event(cursor: Any, worker_schema: str) -> None:
    for _ in range(2):
        make_job("send", locked_by="node", locked_at=minutes_ago(300))
    make_queue("eu", locked_by="node", locked_at=minutes_ago(300))
    recovery.release_stale_locks(cursor, schema=worker_schema)
    recovery.release_stale_locks(cursor, schema=worker_schema)
    assert facts() == [("stale_locks_released", "", {"jobs": 2, "queues": 1, "holder": "node"})]


def test_control__is_told_with_who_and_why(cursor: Any, worker_schema: str) -> None:
    gw.pause(queue="eu", reason="repair", by="ann", create=True)
    gw.resume(queue="eu", by="bob")
    gw.resume(queue="eu", by="bob")
    gw.pause(flag="slow", until=timedelta(hours=1))
    control.settle_pauses(cursor, schema=worker_schema, now=datetime.now(UTC) + timedelta(hours=2))
    from_code.register(cursor, ["nightly"], schema=worker_schema)
    assert from_code.pause(cursor, "nightly", schema=worker_schema)
    assert from_code.resume(cursor, "nightly", schema=worker_schema)
    gw.force_unlock_workers(["django-worker-7", "node"])
    told = facts()
    assert [(kind, subject) for kind, subject, _ in told] == [
        ("work_paused", "eu"),
        ("work_resumed", "eu"),
        ("work_paused", "slow"),
        ("work_resumed", "slow"),
        ("schedule_paused", "nightly"),
        ("schedule_resumed", "nightly"),
        ("force_unlocked", "django-worker-7"),
    ]
    assert told[0][2] == {"what": "queue", "name": "eu", "by": "ann", "reason": "repair"}
    assert told[1][2] == {"what": "queue", "name": "eu", "by": "bob", "reason": "repair"}
    assert told[2][2].keys() == {"what", "name", "until"}
    assert told[6][2] == {"workers": "django-worker-7, node"}
    assert PauseKind.QUEUE.value == "queue"


def test_limits__are_told_with_their_numbers(worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_graphile_worker.api.limits._refuse_unknown", lambda name, known: None)
    override_limit("mail", LimitNumbers(concurrency=3), changed_by="ann")
    assert reset_limit("mail", changed_by="bob")
    assert not reset_limit("mail", changed_by="bob")
    assert facts() == [
        ("limit_changed", "mail", {"name": "mail", "concurrency": 3, "by": "ann"}),
        ("limit_reset", "mail", {"name": "mail", "by": "bob"}),
    ]


def test_crash_loop__is_counted_and_not_listed(cursor: Any, worker_schema: str) -> None:
    def start(name: str) -> None:
        event = NewEvent(kind="worker_started", subject="web-1", severity=1, worker_id=name, details={"jobs": 2})
        events.add(cursor, event, schema=worker_schema)

    for number in range(40):
        start(f"django-worker-{number}")
    rows = found()
    assert len(rows) == 10
    assert sum(row.number for row in rows) == 40
    assert (rows[0].worker_id, rows[0].details) == ("django-worker-39", {"jobs": 62})
    execute("update {schema}._private_events set last_at = last_at - interval '61 minutes'")
    start("django-worker-last")
    assert len(found()) == 11


def test_event_with_an_identity__is_written_once(cursor: Any, worker_schema: str) -> None:
    event = NewEvent(kind="schedule_missed", subject="nightly", identity="2026-01-01")
    assert events.add(cursor, event, schema=worker_schema)
    assert not events.add(cursor, event, schema=worker_schema)
    assert events.add(cursor, NewEvent(kind="schedule_missed", subject="nightly", identity="x"), schema=worker_schema)


def test_event__takes_any_text(cursor: Any, worker_schema: str) -> None:
    details = {"error": "nul \x00, surrogate \ud800, <b>", "n": 1}
    assert events.add(cursor, NewEvent(kind="k" * 50, subject="é" * 5000, details=details), schema=worker_schema)
    (event,) = found()
    assert (len(event.subject), event.details["error"]) == (300, "nul \\x00, surrogate \\ud800, <b>")


def test_event_that_cannot_be_written__breaks_nothing(cursor: Any, worker_schema: str) -> None:
    """The subtransaction of the event is rolled back, and the change of which it tells is not."""
    execute("alter table {schema}._private_events add constraint none check (kind = 'none')")
    register(cursor, worker_schema, silent=90)
    make_job("send", locked_by=f"{WORKER}/1", locked_at=minutes_ago(2))
    recovered = recovery.recover(cursor, schema=worker_schema, timeout=60.0)
    assert (recovered.dead_worker_ids, len(recovered.job_ids)) == ((WORKER,), 1)
    gw.pause(queue="eu", create=True)
    assert len(gw.pauses()) == 1
    assert found() == []


@pytest.mark.django_db(transaction=True)
def test_locked_table__delays_a_stop_for_half_a_second(
    raw_connection: Callable[..., psycopg.Connection[Any]], worker_schema: str, cursor: Any
) -> None:
    register(cursor, worker_schema)
    blocker, other = raw_connection(), raw_connection()
    with blocker.transaction():
        blocker.execute(f'lock table "{worker_schema}"._private_events in access exclusive mode')
        workers.deregister_worker(other.cursor(), WORKER, schema=worker_schema)
        other.commit()
    assert execute("select id from {schema}._private_workers") == []
    assert found() == []


@pytest.mark.django_db(transaction=True)
def test_two_recoveries_at_once__write_one_event(
    raw_connection: Callable[..., psycopg.Connection[Any]], worker_schema: str, cursor: Any
) -> None:
    register(cursor, worker_schema, silent=90)
    for _ in range(3):
        make_job("send", locked_by=f"{WORKER}/1", locked_at=minutes_ago(2))
    first, second = (raw_connection() for _ in range(2))
    late = recovery.read_fleet(first.cursor(), schema=worker_schema, timeout=60.0).late
    numbers = []
    for session in (first, second):
        # The transaction of the first is open while the second recovers.
        removed = recovery.remove_dead_workers(session.cursor(), late, schema=worker_schema, by="x")
        numbers.append(len(recovery.recover_claims(session.cursor(), [WORKER], schema=worker_schema).job_ids))
        assert removed == ([WORKER] if session is first else [])
    for session in (first, second):
        session.commit()
    assert numbers == [3, 0]
    assert [(event.kind, event.details["jobs"]) for event in found("worker_lost", "jobs_recovered")] == [
        ("jobs_recovered", 3),
        ("worker_lost", 3),
    ]


def test_old_events_and_too_many__are_deleted(cursor: Any, worker_schema: str) -> None:
    def add(number: int, severity: int) -> None:
        for each in range(number):
            event = NewEvent(kind="any", subject=f"{severity}-{each}", severity=severity)
            events.add(cursor, event, schema=worker_schema)

    def prune(**most: int) -> int:
        return events.prune(cursor, schema=worker_schema, older_than=86_400, **most)

    add(5, events.INFORMATION)
    add(5, events.ERROR)
    assert prune() == 0
    # Information never displaces what is serious.
    assert prune(most_information=2, most_serious=5) == 3
    assert [event.subject for event in found()] == ["3-4", "3-3", "3-2", "3-1", "3-0", "1-4", "1-3"]
    execute("update {schema}._private_events set last_at = last_at - interval '2 days' where severity = 3")
    assert prune() == 5
    assert len(found()) == 2


def test_alarms__are_counted_by_kind_until_they_are_dismissed(cursor: Any, worker_schema: str) -> None:
    def lose(host: str) -> None:
        event = NewEvent(kind="worker_lost", subject=host, severity=events.ERROR, worker_id=f"django-worker-{host}")
        events.add(cursor, event, schema=worker_schema)

    lose("a")
    execute("update {schema}._private_events set last_at = last_at - interval '2 hours'")
    lose("b")
    lose("c")
    events.add(cursor, NewEvent(kind="schedule_missed", subject="nightly"), schema=worker_schema)
    events.add(cursor, NewEvent(kind="worker_started", subject="a", severity=1), schema=worker_schema)
    lost, missed = alarms(cursor, schema=worker_schema)
    assert (lost.event.subject, lost.number, lost.in_last_hour) == ("c", 3, 2)
    assert (missed.event.kind, missed.number) == ("schedule_missed", 1)
    lose("d")
    assert events.dismiss(cursor, "worker_lost", until=lost.event.last_at, by="ann", schema=worker_schema) == 3
    assert [(alarm.event.subject, alarm.number) for alarm in alarms(cursor, schema=worker_schema)] == [
        ("d", 1),
        ("nightly", 1),
    ]
    execute("update {schema}._private_events set last_at = last_at - interval '25 hours'")
    assert alarms(cursor, schema=worker_schema) == []
