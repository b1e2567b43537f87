"""The sentences about events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from django_graphile_worker.event_texts import GROUPS, KINDS, Style, describe
from django_graphile_worker.sql.events import LoggedEvent
from django_graphile_worker.text import readable_duration

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STYLE = Style(duration=readable_duration, moment=lambda moment: f"{moment:%H:%M}")


NO_WORKER = "No worker was running then, or none reached the database."


def text(kind: str, subject: str = "web-1", *, number: int = 1, recovered: Any = None, **details: Any) -> str:
    event = LoggedEvent(
        *(1, kind, 2, subject, "django-worker-1", NOW, NOW, number, json.dumps(details), None, None),
        None if recovered is None else json.dumps(recovered),
    )
    return " ".join(map(str, describe(event, STYLE)))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (text("worker_started"), "Worker started: web-1."),
        (text("worker_started", number=9980), "Worker started 9,980 times: web-1."),
        # Two workers on one host.
        (text("worker_started", pid=4711), "Worker started: web-1 4711."),
        (text("worker_started", pid=4711, number=2), "Worker started 2 times: web-1."),
        (
            text(
                "worker_lost", pid=4711, silent_seconds=62, recovered={"jobs": 7, "by": "worker-2", "by_host": "web-1"}
            ),
            "Worker lost: web-1 4711 (no heartbeat for 62 s). 7 jobs were returned by worker-2.",
        ),
        (
            text("jobs_recovered", jobs=2, by="worker-2", by_host="web-1"),
            "2 jobs of the lost worker web-1 were returned by worker-2.",
        ),
        (text("worker_stopped", reason="SIGTERM"), "Worker stopped: web-1. Reason: SIGTERM."),
        (
            text("worker_lost", silent_seconds=62, jobs=7, recovered={"jobs": 7, "by": "x", "by_host": "web-2"}),
            "Worker lost: web-1 (no heartbeat for 62 s). 7 jobs were returned by web-2.",
        ),
        (
            text("worker_lost", silent_seconds=62, jobs=1),
            "Worker lost: web-1 (no heartbeat for 62 s). It held 1 job.",
        ),
        (text("worker_lost", silent_seconds=62), "Worker lost: web-1 (no heartbeat for 62 s). It held no jobs."),
        (
            text("jobs_recovered", jobs=2, exhausted=1, by="django-worker-2", by_host="web-2"),
            "2 jobs of the lost worker web-1 were returned by web-2. 1 of them has no attempt left and failed.",
        ),
        (
            text("worker_returned"),
            "Worker is back: web-1 had been declared lost. It continues under a new id.",
        ),
        (
            text("process_replaced", cause="ended", exit_code=-9, former_pid=5),
            "Worker process replaced: web-1, process 5 was killed by signal 9.",
        ),
        (
            text("process_replaced", cause="ended", exit_code=3, former_pid=5, number=4),
            "Worker process replaced: web-1, process 5 ended with exit code 3. 4 times.",
        ),
        (
            text("process_replaced", cause="hung", exit_code=-9, former_pid=5),
            "Worker process replaced: web-1, process 5 hung and was killed.",
        ),
        (
            text("process_replaced", cause="job_does_not_stop", former_pid=5),
            "Worker process replaced: web-1, process 5 has a job that does not stop.",
        ),
        (
            text("schedule_missed", "nightly", name="nightly", ticks=3, last_tick="2026-01-01T03:00:00+00:00"),
            f"Schedule missed: 3 runs of nightly. {NO_WORKER} Last due: 03:00.",
        ),
        (
            text("schedule_backfilled", "nightly", ticks=1),
            "Schedule late: 1 missed run of nightly was added afterwards.",
        ),
        (text("schedule_paused", "nightly"), "Schedule paused: nightly."),
        (text("schedule_resumed", "nightly"), "Schedule resumed: nightly."),
        (
            text("work_paused", what="queue", name="eu", by="ann", reason="repair", until="2026-01-01T03:00:00+00:00"),
            "Queue paused: eu. Until 03:00. Reason: repair. By ann.",
        ),
        (text("work_resumed", what="task", name="send", by="bob"), "Task resumed: send. By bob."),
        (
            text("work_resumed", what="flag", name="slow", until="2026-01-01T03:00:00+00:00"),
            "Flag resumed: slow. Its pause ended at 03:00.",
        ),
        (
            text("limit_changed", name="mail", concurrency=3, rate_count=5, rate_seconds=60, by="ann"),
            "Limit changed: mail. At most 3 at a time. At most 5 in 60 s. By ann.",
        ),
        (text("limit_reset", name="mail"), "Limit reset: mail has the numbers of the code again."),
        (
            text("stale_locks_released", "", jobs=1, queues=2, holder="node"),
            "Stale locks removed: 1 job, 2 queues. Held by node.",
        ),
        (text("force_unlocked", workers="a, b"), "Locks removed by an operator: a, b."),
        (
            text("tasks_unserved", "", tasks=["a", "b"]),
            "No running worker handles the tasks of some ready jobs: a, b.",
        ),
        (
            text("indexes_missed", "", missing=["i"], incomplete=["j"]),
            "Indexes are missing or invalid: i, j. Run “manage.py graphile_worker repair”.",
        ),
        (text("schema_refused", error="too new."), "Workers stop, because the schema is too new: too new."),
        (text("database_lost", seconds=90), "Connection to the database lost: no answer for 90 s."),
        (text("of_a_newer_version", "x"), "of_a_newer_version: x"),
    ],
)
def test_sentences__say_what_happened(told: str, expected: str) -> None:
    assert told == expected


def test_every_kind__is_in_one_group() -> None:
    assert sorted(kind for _, kinds in GROUPS.values() for kind in kinds) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_any_details__break_no_sentence(kind: str) -> None:
    odd: list[Any] = [None, [], {}, "x", 1e300, -1, True, [1, "a", {}]]
    names = ("jobs", "by", "until", "job_ids", "tasks", "silent_seconds", "ticks", "last_tick", "exit_code", "name")
    for value in odd:
        assert text(kind, **dict.fromkeys(names, value), recovered={"jobs": value, "by_host": value})
