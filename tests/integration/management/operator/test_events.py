"""``graphile_worker events``."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql import events
from django_graphile_worker.sql.events import ERROR, INFORMATION, NewEvent
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _events(worker_schema: str) -> None:
    with connection.cursor() as cursor:
        for kind, subject, severity in (("worker_started", "web-1", INFORMATION), ("worker_lost", "web-2", ERROR)):
            details = {"silent_seconds": 62, "jobs": 7}
            event = NewEvent(kind=kind, subject=subject, severity=severity, details=details, worker_id=f"w-{subject}")
            events.add(cursor, event, schema=worker_schema)
    execute("update {schema}._private_events set last_at = last_at - interval '2 hours' where kind = 'worker_started'")


def kinds(*arguments: str) -> list[str]:
    return [row["kind"] for row in operate("events", *arguments, "--json").json]


def test_events__are_a_table_for_people() -> None:
    lines = operate("events").out.split("\n")
    assert lines[0].split() == ["TIME", "SEVERITY", "KIND", "EVENT"]
    assert "error     worker_lost     Worker lost: web-2 (no heartbeat for 62 s). It held 7 jobs." in lines[1]
    assert "Worker started: web-1." in lines[2]


def test_options__select_events() -> None:
    assert kinds() == ["worker_lost", "worker_started"]
    assert kinds("--problems") == kinds("--since", "1h") == kinds("--limit", "1") == ["worker_lost"]
    assert kinds("--kind", "workers") == ["worker_lost", "worker_started"]
    assert kinds("--kind", "worker_started") == kinds("--worker", "web-1") == ["worker_started"]
    assert kinds("--kind", "schedules") == []
    assert operate("events", "--kind", "schedules").err == "No events.\n"
    assert "There are more events" in operate("events", "--limit", "1").err


def test_json__has_the_text_and_the_details() -> None:
    first = operate("events", "--json").json[0]
    assert first["text"] == "Worker lost: web-2 (no heartbeat for 62 s). It held 7 jobs."
    assert (first["details"]["jobs"], first["severity"], first["number"]) == (7, "error", 1)


def test_follow__lists_new_events_until_it_is_interrupted(worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise KeyboardInterrupt
        with connection.cursor() as cursor:
            events.add(cursor, NewEvent(kind="schedule_paused", subject=f"item {looks}"), schema=worker_schema)

    monkeypatch.setattr("time.sleep", sleep)
    lines = operate("events", "--follow").out.strip().split("\n")
    ends: list[Any] = [line.split(": ")[-1] for line in lines]
    assert ends[-2:] == ["item 1.", "item 2."]
    assert len(lines) == 4
