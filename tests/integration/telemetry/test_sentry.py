"""Sentry: transactions, issues and check-ins, as the transport of the SDK gets them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sentry_sdk
from django.core.management import call_command
from django.db import connection
from sentry_sdk import integrations
from sentry_sdk.integrations import logging as sentry_logging
from sentry_sdk.transport import Transport

from django_graphile_worker import RetryLater, cancel_jobs, get_job, models, signals, task
from django_graphile_worker.sql import workers
from django_graphile_worker.telemetry import observers, sentry
from django_graphile_worker.testing import clock, run_jobs
from django_graphile_worker.worker.execution.job_run import ActiveRunStop
from django_graphile_worker.worker.outcomes import EndedWithoutThread, Failed, RunStop
from tests.support.factories import make_job, minutes_ago
from tests.support.slot import open_slot
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db

SIGNALS = (signals.pre_add_jobs, signals.job_permanently_failed, signals.job_cancelled, signals.job_expired)


class Sent(Transport):
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[tuple[str | None, Any]] = []

    def capture_envelope(self, envelope: Any) -> None:
        self.items += [(item.headers.get("type"), item.payload.json) for item in envelope.items]

    def of(self, kind: str) -> list[Any]:
        return [body for each, body in self.items if each == kind]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Sent]]:
    """A function that does what ``sentry_sdk.init()`` does, without patching Django for the tests that follow."""
    scope = sentry_sdk.get_global_scope()
    monkeypatch.setattr(sentry_logging, "_IGNORED_LOGGERS", set(sentry_logging._IGNORED_LOGGERS))
    # What the SDK patches once for the process, it patches here for one test.
    monkeypatch.setattr(logging.Logger, "callHandlers", logging.Logger.callHandlers)
    for name in ("_processed_integrations", "_installed_integrations"):
        monkeypatch.setattr(integrations, name, set())

    def start(**options: Any) -> Sent:
        sent = Sent()
        client = sentry_sdk.Client(
            dsn="https://key@sentry.invalid/1",
            transport=sent,
            traces_sample_rate=1.0,
            default_integrations=False,
            auto_enabling_integrations=False,
            integrations=[sentry_logging.LoggingIntegration()],
            **options,
        )
        scope.set_client(client)
        return sent

    # The scopes of the thread of the tests.
    with own_tasks(), sentry_sdk.isolation_scope():
        yield start
    scope.set_client(None)


@pytest.fixture
def asked_for(settings: Any) -> Iterator[None]:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"SENTRY": True}
    observers.connect()
    yield
    for signal in SIGNALS:
        for receiver in ("_receive_specs", "_receive_failure", "_receive_end"):
            signal.disconnect(dispatch_uid=f"{sentry.__name__}.{receiver}")


def crumbs(event: Any) -> list[str]:
    return [crumb["message"] for crumb in event.get("breadcrumbs", {}).get("values", [])]


def test_25_failed_attempts__are_one_issue(start: Callable[..., Sent], asked_for: None) -> None:
    sent = start()

    @task("shop:pay", queue_name="money")
    def pay(payload: Any) -> None:
        logging.getLogger("shop").warning("paying %s", payload["order"])
        raise ValueError("password=hunter2 is wrong")

    with clock() as now:
        with sentry_sdk.start_transaction(op="http.server", name="/checkout"):
            first = pay.add_job({"order": 1})
            pay.add_job({"order": 2}, max_attempts=1)
        now.advance(days=5)
        logging.getLogger("shop").warning("of no job")
        run_jobs(on_error="record", cron=False)
    # The job that failed at once, then the other.
    other, event = sent.of("event")
    assert crumbs(other) == ["paying 2"]
    assert crumbs(event) == ["paying 1"]
    assert event["transaction"] == "shop:pay"
    assert event["tags"].pop("worker_id")
    assert event["tags"] == {"task": "shop:pay", "queue": "money", "job_id": str(first.id), "attempt": "25"}
    (exception,) = event["exception"]["values"]
    assert (exception["type"], exception["mechanism"]["handled"]) == ("ValueError", False)
    assert "hunter2" not in str(exception["value"])
    assert [frame["function"] for frame in exception["stacktrace"]["frames"]] == ["pay"]
    request, *runs = sent.of("transaction")
    publish, _ = request["spans"]
    assert (publish["op"], publish["data"]["messaging.destination.name"]) == ("queue.publish", "shop:pay")
    assert [run["contexts"]["trace"]["status"] for run in runs] == ["internal_error"] * 26
    traces = {each["contexts"]["trace"]["trace_id"] for each in (request, *runs, event)}
    assert len(traces) == 1
    last = runs[-1]
    trace = last["contexts"]["trace"]
    assert (trace["op"], last["transaction"], last["transaction_info"]) == (
        "queue.process",
        "shop:pay",
        {"source": "task"},
    )
    assert trace["parent_span_id"] == publish["span_id"]
    assert event["contexts"]["trace"]["span_id"] == trace["span_id"]
    assert (trace["data"]["messaging.message.id"], trace["data"]["messaging.message.retry.count"]) == (
        str(first.id),
        24,
    )
    assert trace["data"]["messaging.message.receive.latency"] >= 0


def test_django_task_that_fails__is_one_issue_though_the_framework_logs_it(
    start: Callable[..., Sent], asked_for: None, framework: Any
) -> None:
    sent = start()
    framework.broken.enqueue()
    with clock() as now:
        now.advance(hours=1)
        run_jobs(on_error="record", cron=False)
    (event,) = sent.of("event")
    assert event["exception"]["values"][0]["type"] == "ValueError"


def test_job_whose_workers_died_too_often__is_an_issue(
    start: Callable[..., Sent], asked_for: None, worker_schema: str
) -> None:
    sent = start()
    dead = f"{workers.WORKER_PREFIX}dead"
    job_id = make_job("shop:work", locked_by=dead, attempts=1, max_attempts=1, last_error="It died.")
    with connection.cursor() as cursor:
        workers.register_worker(cursor, dead, {}, schema=worker_schema, now=minutes_ago(10))
        cursor.execute(
            f'insert into "{worker_schema}"._private_job_recoveries (job_id, recoveries) values (%s, 2)', [job_id]
        )
    call_command("graphile_worker", "sweep", "--at-once")
    (event,) = sent.of("event")
    assert (event["exception"]["values"][0]["type"], event["tags"]["job_id"]) == ("WorkerDiedError", str(job_id))


def test_schedules__check_in(start: Callable[..., Sent], asked_for: None, settings: Any) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {
        "CRONTAB": "0 4 * * * shop:nightly ?id=Nightly_report",
        "CRONTAB_TIME_ZONE": "Europe/Berlin",
    }
    sent = start()

    @task("shop:nightly")
    def nightly(payload: Any) -> None: ...

    @task("shop:hourly", every=7200, max_attempts=2)
    def hourly(payload: Any) -> None:
        raise ValueError

    with clock(datetime(2026, 1, 1, 2, 30, tzinfo=UTC)) as now:
        # A run by hand is not expected by the monitor.
        models.Schedule.objects.create(name="by hand", task="shop:nightly", cron="0 0 1 1 *").run_now()
        for hours in (2, 1):
            now.advance(hours=hours)
            run_jobs(on_error="record")
    found = {name: [each for each in sent.of("check_in") if each["monitor_slug"] == name] for name in MONITORS}
    assert {name: [each["status"] for each in all_of] for name, all_of in found.items()} == MONITORS
    assert len(sent.of("check_in")) == 4
    for begun, ended in found.values():
        assert begun["check_in_id"] == ended["check_in_id"]
    assert found["nightly_report"][0]["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 4 * * *"},
        "timezone": "Europe/Berlin",
    }
    assert found["shop-hourly"][0]["monitor_config"]["schedule"] == {"type": "interval", "value": 2, "unit": "hour"}
    # Nothing but the time has caused a run of a schedule: each is a trace of its own.
    runs = [run for run in sent.of("transaction") if run["transaction"] == "shop:hourly"]
    assert len({run["contexts"]["trace"]["trace_id"] for run in runs}) == len(runs) == 2


MONITORS = {"nightly_report": ["in_progress", "ok"], "shop-hourly": ["in_progress", "error"]}


def test_retry_that_the_task_asks_for_and_cancellation__are_no_issues(
    start: Callable[..., Sent], asked_for: None
) -> None:
    sent = start()

    @task("shop:later")
    def later(payload: Any) -> None:
        raise RetryLater(3600)

    job = later.add_job({})
    run_jobs(on_error="record")
    cancel_jobs([job.id])
    assert [run["contexts"]["trace"]["status"] for run in sent.of("transaction")] == ["aborted"]
    assert not sent.of("event")


def test_payload__is_not_sent(start: Callable[..., Sent], asked_for: None) -> None:
    # The variables of frames are an option of the SDK, which concerns all code of a project.
    sent = start(include_local_variables=False, include_source_context=False)

    @task("shop:pay", max_attempts=1)
    def pay(payload: Any) -> None:
        raise ValueError

    pay.add_job({"customer": "Ann"})
    run_jobs(on_error="record")
    assert len(sent.of("event")) == 1
    assert "Ann" not in str(sent.items)


def test_baggage_of_others__stays(start: Callable[..., Sent], asked_for: None) -> None:
    start()

    @task("shop:pay")
    def pay(payload: Any) -> None: ...

    with sentry_sdk.start_transaction(name="/checkout"):
        job = pay.add_job({}, headers={"baggage": "tenant=acme", "request": 7})
    assert job.headers["baggage"].startswith("tenant=acme,sentry-")
    assert (job.headers["request"], "sentry-trace" in job.headers) == (7, True)


def test_without_the_setting__jobs_send_nothing(start: Callable[..., Sent]) -> None:
    sent = start()

    @task("shop:pay")
    def pay(payload: Any) -> None: ...

    job = pay.add_job({})
    run_jobs()
    assert (job.headers, sent.items) == ({}, [])
    assert get_job(job.id) is None


def test_process_that_does_not_use_the_sdk__adds_no_headers(asked_for: None) -> None:
    with own_tasks():

        @task("shop:pay")
        def pay(payload: Any) -> None: ...

        assert pay.add_job({}).headers == {}
        run_jobs()


def test_run_that_ends_without_its_thread__has_its_transaction_and_its_issue(
    start: Callable[..., Sent], asked_for: None
) -> None:
    sent, hangs, goes_on = start(), threading.Event(), threading.Event()

    def hang(payload: Any) -> None:
        sentry_sdk.set_tag("tenant", "acme")
        hangs.set()
        goes_on.wait(30)

    with open_slot() as slot:
        running = slot.start(hang, attempts=25)
        hangs.wait(30)
        (run,) = slot.executor.runs()
        stopping = run.stopping = ActiveRunStop(RunStop(kind="timeout", reason="longer than 1 s"))
        stopping.stack_text, stopping.is_without_thread, run.is_marked = "  in hang()", True, True
        assert isinstance(slot.executor.end_without_thread(run), Failed)
        (event,), (transaction,) = sent.of("event"), sent.of("transaction")
        goes_on.set()
        with pytest.raises(EndedWithoutThread):
            running.result(30)
        slot.run(lambda payload: None)
    assert transaction["contexts"]["trace"]["status"] == "deadline_exceeded"
    assert (event["tags"]["tenant"], event["tags"]["task"]) == ("acme", "a_task")
    assert "in hang()" in event["exception"]["values"][0]["value"]
    # The late end of the thread sends nothing, and the next job of the worker has a scope of its own.
    assert len(sent.of("event")) == 1
    _, following = sent.of("transaction")
    assert "tenant" not in following["tags"]


def test_headers_that_are_no_monitor__leave_the_run_its_transaction(
    start: Callable[..., Sent], asked_for: None
) -> None:
    sent = start()

    @task
    def fails(payload: Any) -> None:
        raise ValueError

    fails.add_job(headers={"sentry-monitor": "nightly"}, max_attempts=1)
    run_jobs(on_error="record")
    ((event,), (transaction,)) = sent.of("event"), sent.of("transaction")
    assert event["tags"]["task"] == transaction["tags"]["task"] == "fails"
