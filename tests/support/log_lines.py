"""Signals as a worker sends them, for tests of the lines that they write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django_graphile_worker import signals
from django_graphile_worker.jobs import Job
from django_graphile_worker.signals import NamedSignal

EVENTS = {name: value for name, value in vars(signals).items() if isinstance(value, NamedSignal)}
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def make_job(**changes: Any) -> Job:
    columns: dict[str, Any] = {
        "id": 7,
        "task_identifier": "send_email",
        "payload": {"password": "swordfish"},
        "queue_name": "mail",
        "priority": 0,
        "run_at": NOW,
        "attempts": 2,
        "max_attempts": 25,
        "last_error": None,
        "created_at": NOW,
        "updated_at": NOW,
        "key": None,
        "locked_at": NOW,
        "locked_by": "w",
        "revision": 0,
        "flags": frozenset(),
    }
    return Job(**(columns | changes))


def send(name: str, /, **arguments: Any) -> None:
    """Send a signal as the worker does, and raise the errors of receivers."""
    for _, response in EVENTS[name].send_robust(object, **arguments):
        if isinstance(response, Exception):
            raise response


def send_all(database: str) -> None:
    """Send a signal for each kind of line."""
    send("job_succeeded", job=make_job(), duration=0.5, worker_id="w", database=database)
    send("job_started", job=make_job(), worker_id="w", database=database)
    send("claim_lost", job=make_job(), worker_id="w", database=database)
    send("worker_stopping", worker_id="w", database=database, reason="SIGTERM")
    send("database_trouble", worker_id="w", database=database, action="fetcher", error=OSError("x"), retry_in=1.0)
