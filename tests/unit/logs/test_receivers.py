"""Which signal writes which line."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from psycopg import OperationalError
from psycopg.errors import AdminShutdown, CannotConnectNow, UndefinedFunction

from django_graphile_worker.logs import receivers
from django_graphile_worker.logs.receivers import Throttle
from tests.support.log_lines import EVENTS, make_job, send


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_every_signal_can_be_sent_with_its_documented_arguments(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="django_graphile_worker")
    examples: dict[str, Any] = {"job": make_job(), "error": ValueError("no"), "duration": 0.5, "retry_in": 3.0}
    arguments = {argument: examples.get(argument, "x") for argument in EVENTS[name].arguments}
    send(name, **arguments)
    silent = {"listening_starting", "claim_started", "nothing_claimed", "jobs_claimed", "job_released", "pre_add_jobs"}
    assert len(caplog.records) == (0 if name in silent else 1)
    assert "?" not in caplog.text
    assert "swordfish" not in caplog.text


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (1, "schedule nightly missed the tick of 04:00: no worker fired it"),
        (2, "schedule nightly missed 2 ticks, from 04:00 to 05:00: no worker fired them"),
    ],
)
def test_missed_ticks__are_counted_if_there_are_several(
    number: int, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    send("schedule_missed", name="nightly", number=number, first_tick="04:00", last_tick="05:00")
    assert [record.getMessage() for record in caplog.records] == [line]


JOB_LINES = [
    ("job_succeeded", {}, "INFO", "send_email #7 succeeded after 12 ms (attempt 2 of 25)"),
    (
        "job_failed",
        {"error": ValueError("bad\nthing"), "retry_in": 7.4},
        "WARNING",
        "send_email #7 failed after 12 ms (attempt 2 of 25), next try in 7.4 s: ValueError: bad\\nthing",
    ),
    (
        "job_permanently_failed",
        {"error": KeyError()},
        "ERROR",
        "send_email #7 permanently failed after 12 ms (attempt 2 of 25): KeyError",
    ),
    ("job_interrupted", {"reason": "x"}, "WARNING", "send_email #7 interrupted after 12 ms (attempt 2 of 25)"),
]


@pytest.mark.parametrize(("name", "arguments", "level", "line"), JOB_LINES)
def test_a_job_has_one_line(
    name: str, arguments: dict[str, Any], level: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(name, job=make_job(), duration=0.0123, worker_id="w", **arguments)
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("django_graphile_worker.jobs", level, line)
    ]


def send_trouble(error: Exception, action: str = "fetcher") -> None:
    send("database_trouble", worker_id="w", action=action, error=error, retry_in=0.25)


def test_an_outage_has_one_line_for_each_part__and_one_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    for error in (AdminShutdown("terminated"), OperationalError("refused"), CannotConnectNow("starting up")):
        for action in ("fetcher", "heartbeat"):
            send_trouble(error, action)
        send("listening_lost", worker_id="w", error=error, retry_in=0.25)
    send("database_answered", worker_id="w", duration=14.25)
    send_trouble(OperationalError("again"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "fetcher failed, next try in 250 ms: AdminShutdown: terminated"),
        ("WARNING", "heartbeat failed, next try in 250 ms: AdminShutdown: terminated"),
        ("WARNING", "worker w stopped listening, next try in 250 ms: AdminShutdown: terminated"),
        ("INFO", "the database answers again after 14 s"),
        ("WARNING", "fetcher failed, next try in 250 ms: OperationalError: again"),
    ]


def test_a_schema_that_is_older_than_the_code__is_a_line_that_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    send_trouble(UndefinedFunction("function f() does not exist"), "recovery")
    (line,) = caplog.messages
    assert line == (
        "recovery failed, next try in 250 ms: UndefinedFunction: function f() does not exist; the worker schema lacks "
        'something that this version needs: run "manage.py migrate graphile_worker"'
    )


def test_an_error_that_persists_is_a_warning_once_a_minute__and_a_debug_line_each_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(receivers, "_throttle", Throttle(clock=lambda: now))
    caplog.set_level(logging.DEBUG, logger="django_graphile_worker")
    for now in (0.0, 20.0, 40.0, 60.0):  # noqa: B007 - the clock reads it
        send_trouble(OperationalError("refused"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG", "WARNING"]
    assert caplog.messages[-1].endswith("OperationalError: refused (2 similar lines were not written)")


def test_a_line_of_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    send("worker_started", worker_id="w-1", database="default", concurrency=10, tasks=["a", "b\n"])
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("django_graphile_worker.worker", "worker w-1 started on default: 10 at a time")
    ]
    assert caplog.records[0].tasks == "a, b\\n"  # type: ignore[attr-defined]


def test_dead_workers_are_logged_with_their_jobs__if_they_had_any(caplog: pytest.LogCaptureFixture) -> None:
    send("jobs_recovered", worker_id="w", job_ids=(4, 5), dead_worker_ids=("v",))
    send("jobs_recovered", worker_id="w", job_ids=(), dead_worker_ids=("v", "u"))
    assert caplog.messages == [
        "recovered the jobs 4, 5 of dead workers: v",
        "removed dead workers, which held no jobs: v, u",
    ]


def test_tasks_without_a_worker_are_logged__with_the_name_that_is_probably_meant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    send("tasks_unserved", worker_id="w", database="default", identifiers=("send_recipt", "zzz"))
    assert caplog.messages == [
        "jobs wait for tasks that no live worker has: send_recipt (Did you mean 'send_receipt'?), zzz"
    ]


def test_tasks_that_the_project_does_not_have_are_logged__with_the_name_that_is_probably_meant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    send("tasks_not_found", worker_id="w", database="default", setting="TASKS", patterns=("send_recipt", "zzz_*"))
    assert caplog.messages == [
        "TASKS names tasks that this project does not have: send_recipt (Did you mean 'send_receipt'?), zzz_*"
    ]
    assert caplog.records[0].levelname == "WARNING"
