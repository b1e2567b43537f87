"""OpenTelemetry: the spans of adding and of running, and what connects them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracer, SpanKind, StatusCode, Tracer

from django_graphile_worker import (
    BatchFailure,
    Helpers,
    JobSpec,
    RetryLater,
    TaskCancelled,
    add_job,
    add_jobs,
    current_job,
    get_job,
    models,
    signals,
    task,
)
from django_graphile_worker.telemetry import observers, opentelemetry
from django_graphile_worker.testing import clock, run_jobs
from django_graphile_worker.worker.execution.job_run import ActiveRunStop
from django_graphile_worker.worker.outcomes import CancelledByWorker, EndedWithoutThread, Outcome, RunStop
from tests.support.slot import Slot, SlotWithoutThread, open_slot
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("shop")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"OPENTELEMETRY": True}
    spans = Spans()
    monkeypatch.setattr(opentelemetry, "_tracer", spans.tracer)
    monkeypatch.setattr(observers, "_logged", set())
    observers.connect()
    with own_tasks():
        yield spans
    for signal in (signals.pre_add_jobs, signals.schedule_fired, signals.cron_scheduled, signals.cron_backfilled):
        signal.disconnect(dispatch_uid=opentelemetry.__name__)


def test_request_and_run__are_two_traces_with_a_link(spans: Spans) -> None:
    seen: list[Any] = []

    @task("shop:receipt", queue_name="mail")
    def receipt(payload: Any) -> None:
        job = current_job()
        assert job is not None
        seen.append((baggage.get_baggage("tenant"), job.headers))
        with spans.tracer.start_as_current_span("render"):
            add_job("shop:next")

    token = context.attach(baggage.set_baggage("tenant", "acme"))
    with spans.tracer.start_as_current_span("GET /checkout") as request:
        receipt.add_job({}, priority=3, headers={"tenant": "acme"})
    context.detach(token)
    run_jobs()
    added, ran, child = spans.one("add_job shop:receipt"), spans.one("run_job shop:receipt"), spans.one("render")
    assert added.kind is SpanKind.PRODUCER
    assert added.parent == request.get_span_context()
    assert ran.kind is SpanKind.CONSUMER
    assert ran.parent is None
    assert ran.context.trace_id != added.context.trace_id
    assert [link.context.span_id for link in ran.links] == [added.context.span_id]
    assert child.parent == ran.context
    # What the task adds belongs to its trace, and the run of that is linked to it in its turn.
    following = spans.one("add_job shop:next")
    assert following.parent == child.context
    ((tenant, headers),) = seen
    assert (tenant, headers["tenant"]) == ("acme", "acme")
    assert added.attributes == {
        "messaging.system": "graphile_worker",
        "messaging.operation.type": "send",
        "messaging.operation.name": "add_job",
        "messaging.destination.name": "shop:receipt",
        "graphile_worker.queue": "mail",
        "graphile_worker.priority": 3,
    }
    attributes = dict(ran.attributes or {})
    assert str(attributes.pop("messaging.message.id")).isdigit()
    assert attributes.pop("messaging.client.id")
    assert attributes == {
        **(added.attributes or {}),
        "messaging.operation.type": "process",
        "messaging.operation.name": "run_job",
        "graphile_worker.attempt": 1,
        "graphile_worker.max_attempts": 25,
        "graphile_worker.ending": "succeeded",
    }
    assert ran.status.status_code is StatusCode.UNSET


def test_retries__each_is_linked_to_the_span_that_added_the_job(spans: Spans) -> None:
    @task("shop:pay", max_attempts=3, atomic=True)
    def pay(payload: Any, helpers: Helpers) -> None:
        if helpers.job.attempts == 1:
            raise RetryLater(60)
        raise ValueError("password=hunter2 is wrong")

    with clock() as now:
        pay.add_job({})
        now.advance(days=1)
        run_jobs(on_error="record", cron=False)
    added, runs = spans.one("add_job shop:pay"), spans.named("run_job shop:pay")
    assert [(link.context.trace_id, link.context.span_id) for run in runs for link in run.links] == [
        (added.context.trace_id, added.context.span_id)
    ] * 3
    assert len({run.context.trace_id for run in runs}) == 3
    ended = [(run.attributes or {})["graphile_worker.ending"] for run in runs]
    assert ended == ["retry_later", "failed", "failed"]
    assert [run.status.status_code for run in runs] == [StatusCode.UNSET, StatusCode.ERROR, StatusCode.ERROR]
    (event,) = runs[1].events
    assert event.attributes is not None
    assert (event.attributes["exception.type"], (runs[1].attributes or {})["error.type"]) == ("ValueError",) * 2
    # The task is named, the frames of the worker and the secret are not.
    assert "in pay" in str(event.attributes["exception.stacktrace"])
    assert "django_graphile_worker/worker" not in str(event.attributes)
    assert "hunter2" not in f"{event.attributes} {runs[1].status.description}"


def test_many_jobs_at_once__have_one_span(spans: Spans) -> None:
    add_jobs([JobSpec("shop:a", unique=True), JobSpec("shop:a", {"n": 2})])
    add_jobs([JobSpec("shop:a", {"n": 3}), JobSpec("shop:b")], returning=False)
    assert (spans.one("add_job shop:a").attributes or {})["messaging.batch.message_count"] == 2
    assert "messaging.destination.name" not in (spans.named("add_job")[0].attributes or {})
    jobs = [get_job(pk) for pk in models.Job.objects.order_by("id").values_list("id", flat=True)]
    traces = [job.headers["traceparent"] for job in jobs if job is not None]
    assert traces == [traces[0]] * 2 + [traces[2]] * 2
    assert traces[0] != traces[2]
    # The trace is no part of what makes a job unique.
    assert add_job("shop:a", unique=True).existed


def test_batch_job_that_fails_in_part(spans: Spans) -> None:
    @task("shop:items")
    def items(payload: Any) -> Any:
        raise BatchFailure({1: ValueError("no such item")}, len(payload))

    items.add_job([1, 2])
    run_jobs(on_error="record")
    assert spans.one("run_job shop:items").status.description.startswith("BatchFailure: 1 of 2")  # type: ignore[union-attr]


def test_django_task(spans: Spans, framework: Any) -> None:
    framework.add.enqueue(1)
    run_jobs()
    added = spans.one("add_job tests.support.django_tasks.add")
    ran = spans.one("run_job tests.support.django_tasks.add")
    assert [link.context.span_id for link in ran.links] == [added.context.span_id]


def test_schedules__the_worker_that_fires_is_the_producer(spans: Spans, settings: Any) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": "0 4 * * * shop:nightly"}

    @task("shop:nightly")
    def nightly(payload: Any) -> None: ...

    @task("shop:hourly", every=3600)
    def hourly(payload: Any) -> None: ...

    with clock() as now:
        now.advance(days=1)
        run_jobs()
    for name, number in (("shop:nightly", 1), ("shop:hourly", 24)):
        added, ran = spans.named(f"add_job {name}"), spans.named(f"run_job {name}")
        assert len(added) == number
        assert [span.parent for span in added] == [None] * number
        assert {link.context.span_id for span in ran for link in span.links} == {each.context.span_id for each in added}


def test_schedule_that_another_worker_fires__has_no_span_here(spans: Spans) -> None:
    schedule = signals.FiringSchedule("nightly", "0 4 * * *", None, "UTC")
    for _ in range(2):
        (spec,) = signals.received_specs(
            [JobSpec("shop:nightly")], database="default", installation="default", schedule=schedule
        )
    assert spans.named("add_job shop:nightly") == []
    signals.cron_scheduled.send(object, identifiers=["nightly"], tick=None)
    exported = spans.one("add_job shop:nightly")
    assert f"{exported.context.span_id:016x}" in str((spec.headers or {})["traceparent"])


def test_async_task__its_spans_are_below_that_of_the_run(spans: Spans) -> None:
    async def work(payload: Any) -> None:
        with spans.tracer.start_as_current_span(f"child of {payload}"):
            await asyncio.sleep(0)

    with open_slot(SlotWithoutThread) as slot:
        started = [slot.start(work, str(number), id=number) for number in (1, 2)]
        for each in started:
            each.result(30)
    runs = {(run.attributes or {})["messaging.message.id"]: run.context for run in spans.named("run_job a_task")}
    assert {number: spans.one(f"child of {number}").parent for number in (1, 2)} == {
        number: runs[str(number)] for number in (1, 2)
    }


@pytest.mark.parametrize("ending", ["cancelled", "interrupted"])
def test_run_that_is_stopped__is_no_error(ending: str, spans: Spans) -> None:
    with open_slot() as slot:

        def work(payload: Any) -> None:
            if ending == "interrupted":
                raise CancelledByWorker
            (run,) = slot.executor.runs()
            run.stopping, run.is_marked = ActiveRunStop(RunStop("cancelled")), True
            raise TaskCancelled

        slot.run(work)
    span = spans.one("run_job a_task")
    assert (span.attributes or {})["graphile_worker.ending"] == ending
    assert span.status.status_code is StatusCode.UNSET


def test_without_an_sdk__jobs_are_as_before(settings: Any, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opentelemetry, "_tracer", NoOpTracer())
    ran: list[Any] = []

    @task("shop:work")
    def work(payload: Any) -> None:
        ran.append(payload)

    assert work.add_job({}).headers == {}
    run_jobs()
    assert ran == [{}]


def test_telemetry_that_fails__harms_no_job_and_is_logged_once(spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise ConnectionError("no collector")

    ran: list[Any] = []

    @task("shop:work")
    def work(payload: Any) -> None:
        ran.append(payload)

    spans.provider.add_span_processor(Broken())
    for number in range(2):
        work.add_job({"n": number})
    run_jobs()
    assert ran == [{"n": 0}, {"n": 1}]
    assert [record.name for record in caplog.records].count("django_graphile_worker.telemetry") == 1


@contextmanager
def hanging() -> Iterator[tuple[Slot, Future[Outcome]]]:
    """Yield a slot, and its job, which hangs until the end of the block."""
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(payload: Any) -> None:
        hangs.set()
        goes_on.wait(30)

    with open_slot() as slot:
        running = slot.start(hang)
        hangs.wait(30)
        try:
            yield slot, running
        finally:
            goes_on.set()
            running.exception(30)


def test_run_that_ends_without_its_thread__has_its_span(spans: Spans) -> None:
    with hanging() as (slot, running):
        (run,) = slot.executor.runs()
        stopping = run.stopping = ActiveRunStop(RunStop(kind="timeout", reason="longer than 1 s"))
        stopping.is_without_thread = run.is_marked = True
        slot.executor.end_without_thread(run)
        span = spans.one("run_job a_task")
    assert isinstance(running.exception(), EndedWithoutThread)
    assert span.status.status_code is StatusCode.ERROR
    assert spans.one("run_job a_task") is span


def test_run_that_is_returned_when_the_worker_stops__has_its_span(spans: Spans) -> None:
    with hanging() as (slot, _):
        slot.executor.forget_running()
        assert (spans.one("run_job a_task").attributes or {})["graphile_worker.ending"] == "interrupted"
    assert len(spans.named("run_job a_task")) == 1
