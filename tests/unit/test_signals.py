from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg import OperationalError
from psycopg.errors import AdminShutdown, CannotConnectNow, QueryCanceled, ReadOnlySqlTransaction

from django_graphile_worker import signals
from django_graphile_worker.crontab import parse_crontab
from django_graphile_worker.exceptions import RetryLater
from django_graphile_worker.jobs import Job
from django_graphile_worker.logs import receivers
from django_graphile_worker.logs.throttle import Repetitions
from django_graphile_worker.signals import Event

EVENTS = {name: value for name, value in vars(signals).items() if isinstance(value, Event)}
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
    """Send as the worker does, and let no receiver's error pass."""
    for _, response in EVENTS[name].send_robust(object, **arguments):
        if isinstance(response, Exception):
            raise response


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_graphile_worker")
    receivers._troubles.forget()


def test_the_signals_of_a_workers_life_are_there() -> None:
    assert set(EVENTS) == {
        "worker_started",
        "worker_stopping",
        "worker_stopped",
        "worker_lost_lease",
        "schema_refused",
        "listening_started",
        "listening_lost",
        "jobs_claimed",
        "job_started",
        "job_succeeded",
        "job_failed",
        "job_permanently_failed",
        "job_interrupted",
        "job_released",
        "jobs_recovered",
        "stale_locks_released",
        "cron_started",
        "cron_scheduled",
        "cron_backfilled",
        "database_trouble",
        "database_answered",
        "indexes_missed",
        "leftover_state_found",
        "results_refused",
        "claim_lost",
        "tasks_unserved",
    }


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_every_signal_can_be_sent_with_its_documented_arguments(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="django_graphile_worker")
    examples: dict[str, Any] = {"job": make_job(), "error": ValueError("no"), "duration": 0.5, "retry_in": 3.0}
    arguments = {argument: examples.get(argument, "x") for argument in EVENTS[name].arguments}
    send(name, **arguments)
    silent = {"jobs_claimed", "job_released"}
    assert len(caplog.records) == (0 if name in silent else 1)
    assert "?" not in caplog.text
    assert "swordfish" not in caplog.text


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


def test_a_line_carries_its_facts__and_never_the_payload(caplog: pytest.LogCaptureFixture) -> None:
    send("job_succeeded", job=make_job(), duration=0.5, worker_id="w")
    facts = vars(caplog.records[0])
    assert {name: facts[name] for name in ("job_id", "task_identifier", "queue_name", "attempt", "max_attempts")} == {
        "job_id": 7,
        "task_identifier": "send_email",
        "queue_name": "mail",
        "attempt": 2,
        "max_attempts": 25,
    }
    assert (facts["outcome"], facts["duration"], facts["worker_id"]) == ("succeeded", 0.5, "w")
    assert "swordfish" not in str(facts)


@pytest.fixture
def serve() -> Iterator[Callable[..., None]]:
    """Have the process work on these databases, too."""
    served: list[str] = []

    def add(*aliases: str) -> None:
        served.extend(aliases)
        receivers.served_databases.add(aliases)

    yield add
    receivers.served_databases.remove(served)


def tell_all(database: str) -> None:
    send("job_succeeded", job=make_job(), duration=0.5, worker_id="w", database=database)
    send("job_started", job=make_job(), worker_id="w", database=database)
    send("claim_lost", job=make_job(), worker_id="w", database=database)
    send("worker_stopping", worker_id="w", database=database, reason="SIGTERM")
    send("database_trouble", worker_id="w", database=database, action="fetcher", error=OSError("x"), retry_in=1.0)


def test_every_line_names_its_database__where_a_process_works_on_several(
    serve: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="django_graphile_worker")
    serve("default", "eu")
    tell_all("eu")
    assert len(caplog.messages) == 5
    assert all(message.startswith("[eu] ") for message in caplog.messages)


def test_every_line_names_its_installation__where_installations_are_named(
    serve: Callable[..., None], caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.GRAPHILE_WORKER = {"default": {}, "reports": {"SCHEMA": "reports"}}
    serve("default", "reports")
    about = {"worker_id": "w", "database": "default", "installation": "reports"}
    send("job_succeeded", job=make_job(), duration=0.5, **about)
    send("worker_started", concurrency=2, tasks=["a"], **about)
    send("database_trouble", action="fetcher", error=OSError("x"), retry_in=1.0, **about)
    assert [message.split()[0] for message in caplog.messages] == ["[reports]"] * 3
    assert caplog.messages[1] == "[reports] worker w started on reports: 2 at a time"


def test_no_line_names_its_database__where_there_is_one(
    serve: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="django_graphile_worker")
    serve("eu", "eu")
    tell_all("eu")
    assert not any("eu" in message for message in caplog.messages)
    assert [vars(record)["database"] for record in caplog.records] == ["eu"] * 5


def test_several_databases_are_told_apart__as_long_as_there_are_several(
    serve: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    serve("eu")
    receivers.served_databases.add(["default"])
    receivers.served_databases.remove(["default"])
    tell_all("eu")
    assert not any("[eu]" in message for message in caplog.messages)


def test_success_can_be_kept_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    send("job_succeeded", job=make_job(), duration=0.5, worker_id="w", log_success=False)
    send("job_failed", job=make_job(), duration=0.5, worker_id="w", error=ValueError(), retry_in=1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_logger_that_is_not_enabled_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="django_graphile_worker")

    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    for name in ("job_succeeded", "job_failed", "job_permanently_failed", "job_interrupted", "claim_lost"):
        send(name, job=Untouchable(), duration=0.5, worker_id="w")


@pytest.mark.parametrize(
    ("identifier", "shown"),
    [
        ("a\nINFO forged", "a\\nINFO forged"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("größe 🎉", "größe 🎉"),
        ("x" * 501, "x" * 500 + "…"),
    ],
)
def test_names_cannot_forge_lines(identifier: str, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    send("job_succeeded", job=make_job(task_identifier=identifier), duration=0.5)
    assert caplog.records[0].getMessage() == f"{shown} #7 succeeded after 500 ms (attempt 2 of 25)"


@pytest.mark.parametrize("name", ["job_failed", "job_permanently_failed"])
def test_a_failed_job_s_record_has_the_exception__for_whoever_collects_them(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = ValueError("no")
    send(name, job=make_job(), duration=0.5, error=error, retry_in=1.0)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert vars(record)["error"] == "ValueError: no"
    assert vars(record)["retry_in"] == (1.0 if name == "job_failed" else None)


def test_a_record_s_message_is_a_template__and_the_values_are_its_arguments(
    serve: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="django_graphile_worker")
    for database in ("default", "eu"):
        tell_all(database)
        for number in (1, 2):
            error = ValueError(f"no order {number}")
            about = {"job": make_job(id=number), "duration": 0.1 * number, "database": database}
            send("job_failed", **about, error=error, retry_in=1.0 * number)
            send("job_permanently_failed", **about, error=error)
    templates = {str(record.msg) for record in caplog.records}
    assert len(templates) == 7, templates
    assert "%s #%s failed after %s (attempt %s of %s), next try in %s: %s" in templates
    assert "%s #%s permanently failed after %s (attempt %s of %s): %s" in templates
    assert all(record.args for record in caplog.records)
    serve("default", "eu")
    send("job_succeeded", job=make_job(), duration=0.5, database="eu")
    assert caplog.records[-1].msg == "[%s] %s #%s succeeded after %s (attempt %s of %s)"


def test_a_retry_that_has_no_attempt_left_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    error = RetryLater(5, "rate limited")
    send("job_permanently_failed", job=make_job(), duration=0.5, error=error)
    (record,) = caplog.records
    assert record.exc_info
    assert record.exc_info[1] is error


def test_durations_are_told_as_people_say_them(caplog: pytest.LogCaptureFixture) -> None:
    send("job_failed", job=make_job(), duration=0.0004, error=ValueError("no"), retry_in=1096.6)
    send("job_succeeded", job=make_job(), duration=7_500.0)
    assert caplog.messages == [
        "send_email #7 failed after 0.4 ms (attempt 2 of 25), next try in 18 min: ValueError: no",
        "send_email #7 succeeded after 2 h 5 min (attempt 2 of 25)",
    ]


def test_a_retry_that_the_task_asked_for_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    send("job_failed", job=make_job(), duration=0.5, error=RetryLater(5, "rate limited"), retry_in=5.0)
    (record,) = caplog.records
    assert record.exc_info is None
    assert vars(record)["error"] == "RetryLater: rate limited"


def test_an_error_that_cannot_be_written_to_a_file_leaves_its_traceback_out(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("it failed")
    error.__cause__ = ValueError("\ud800")
    for each in (error, error.__cause__):
        send("job_failed", job=make_job(), duration=0.5, error=each, retry_in=1.0)
    assert [record.exc_info for record in caplog.records] == [None, None]
    assert caplog.messages[1].endswith("ValueError: \\ud800")


def test_secrets_in_an_error_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    send("job_failed", job=make_job(), duration=0.5, error=ValueError("no: token=hunter2 at x"), retry_in=5.0)
    assert "hunter2" not in caplog.messages[0]
    assert caplog.messages[0].endswith(" at x")


def test_an_error_without_readable_text_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    class Mute(Exception):  # noqa: N818 - a name for the line
        def __str__(self) -> str:
            raise RuntimeError("no words")

    send("job_failed", job=make_job(), duration=0.5, error=Mute(), retry_in=1.0)
    assert caplog.records[0].getMessage().endswith("next try in 1 s: Mute: <its text could not be read>")


def test_numbers_are_numbers__also_in_records_about_workers(caplog: pytest.LogCaptureFixture) -> None:
    send("worker_started", worker_id="w", database="default", concurrency=10, tasks=["a", "b"])
    send("worker_stopped", worker_id="w", reason="SIGTERM", duration=0.0723)
    started, stopped = map(vars, caplog.records)
    assert (started["concurrency"], started["tasks"], stopped["duration"]) == (10, "a, b", 0.0723)


def tell_trouble(error: Exception, action: str = "fetcher") -> None:
    send("database_trouble", worker_id="w", action=action, error=error, retry_in=0.25)


def test_an_outage_has_one_line_for_each_part__and_one_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    for error in (AdminShutdown("terminated"), OperationalError("refused"), CannotConnectNow("starting up")):
        for action in ("fetcher", "heartbeat"):
            tell_trouble(error, action)
        send("listening_lost", worker_id="w", error=error, retry_in=0.25)
    send("database_answered", worker_id="w", duration=14.25)
    tell_trouble(OperationalError("again"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "fetcher failed, next try in 250 ms: AdminShutdown: terminated"),
        ("WARNING", "heartbeat failed, next try in 250 ms: AdminShutdown: terminated"),
        ("WARNING", "worker w stopped listening, tries again in 250 ms: AdminShutdown: terminated"),
        ("INFO", "the database answers again after 14 s"),
        ("WARNING", "fetcher failed, next try in 250 ms: OperationalError: again"),
    ]


def test_another_kind_of_trouble_is_told__though_the_part_is_in_trouble_already(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for error in (OperationalError("refused"), ReadOnlySqlTransaction("read-only"), QueryCanceled("too slow")):
        tell_trouble(error)
    assert len(caplog.records) == 3


def test_trouble_that_stays_is_told_now_and_then__and_every_time_to_whoever_debugs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(receivers, "_troubles", Repetitions(clock=lambda: now))
    caplog.set_level(logging.DEBUG, logger="django_graphile_worker")
    for now in (0.0, 20.0, 40.0, 60.0):  # noqa: B007 - the clock reads it
        tell_trouble(OperationalError("refused"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG", "WARNING"]
    assert caplog.messages[-1].endswith("OperationalError: refused (2 more like it were not written)")


def test_a_line_of_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    send("worker_started", worker_id="w-1", database="default", concurrency=10, tasks=["a", "b\n"])
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("django_graphile_worker.worker", "worker w-1 started on default: 10 at a time")
    ]
    assert caplog.records[0].tasks == "a, b\\n"  # type: ignore[attr-defined]


def test_dead_workers_are_told_with_their_jobs__if_they_had_any(caplog: pytest.LogCaptureFixture) -> None:
    send("jobs_recovered", worker_id="w", job_ids=(4, 5), dead_worker_ids=("v",))
    send("jobs_recovered", worker_id="w", job_ids=(), dead_worker_ids=("v", "u"))
    assert caplog.messages == [
        "recovered the jobs 4, 5 of dead workers: v",
        "removed dead workers, which held no jobs: v, u",
    ]


def test_tasks_without_a_worker_are_told__with_the_name_that_was_probably_meant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    send("tasks_unserved", worker_id="w", database="default", identifiers=("send_recipt", "zzz"))
    assert caplog.messages == [
        "jobs wait for tasks that no live worker has: send_recipt (Did you mean 'send_receipt'?), zzz"
    ]


def test_crontab_items_are_told_by_name__never_with_their_payload(caplog: pytest.LogCaptureFixture) -> None:
    items = parse_crontab('0 4 * * * report {"password": "swordfish"}\n@daily tidy ?id=evening {}')
    send("cron_started", worker_id="w", items=items)
    assert caplog.messages == ["cron started: report, evening"]
    assert "swordfish" not in str(vars(caplog.records[0]))


def test_an_argument_that_is_not_sent_leaves_a_gap__not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    send("database_trouble", error=OSError("gone"), name="a name that a log record has already")
    assert caplog.messages == ["? failed, next try in ?: OSError: gone"]


def test_connecting_twice_does_not_double_the_lines(caplog: pytest.LogCaptureFixture) -> None:
    receivers.connect()
    send("job_succeeded", job=make_job(), duration=0.5)
    assert len(caplog.records) == 1


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


def _formatted(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = caplog.records
    return logging.Formatter("%(message)s").format(record)


def test_logged_exception__is_bounded_and_says_how_much_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    error = _raised(ValueError("x" * 5_000_000))
    send("job_failed", job=make_job(), error=error, duration=0.1, retry_in=1.0, worker_id="w", database="default")
    text = _formatted(caplog)
    assert len(text) < 70_000
    assert re.search(r"ValueError: x+.*\[\.\.\. \d+ characters left out \.\.\.\]", text, re.DOTALL)
    assert "in _raised" in text, "the traceback is the exception's own"


def test_logged_exception__has_no_secrets_in_it_or_in_what_caused_it(caplog: pytest.LogCaptureFixture) -> None:
    class PaymentError(Exception):
        """Of the site."""

    text = "password=hunter2"
    try:
        try:
            raise ConnectionError(text)
        except ConnectionError as cause:
            cause.add_note("token=abc")
            raise PaymentError("it failed") from cause
    except PaymentError as error:
        send("job_failed", job=make_job(), error=error, duration=0.1, retry_in=1.0, worker_id="w", database="default")
    text = _formatted(caplog)
    assert not re.search("hunter2|abc", text)
    assert re.search("ConnectionError: password=.*direct cause.*PaymentError: it failed", text, re.DOTALL)


def test_logged_group__has_no_secrets_in_its_members(caplog: pytest.LogCaptureFixture) -> None:
    error = _raised(ExceptionGroup("two", [ValueError("key=hunter2"), KeyError("plain")]))
    send("job_failed", job=make_job(), error=error, duration=0.1, retry_in=1.0, worker_id="w", database="default")
    text = _formatted(caplog)
    assert "hunter2" not in text
    assert "two (2 sub-exceptions)" in text


def test_logged_exception__is_itself_where_nothing_is_to_be_hidden(
    caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.GRAPHILE_WORKER = {"REDACT_ERRORS": False}
    error = _raised(ValueError("password=hunter2"))
    send("job_failed", job=make_job(), error=error, duration=0.1, retry_in=1.0, worker_id="w", database="default")
    assert caplog.records[0].exc_info
    assert caplog.records[0].exc_info[1] is error
