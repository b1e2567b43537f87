"""OpenTelemetry: a span where jobs are added, and one for each run, which is linked to it.

A run is the root of a trace of its own: it may begin days after the request, and again after each failure, and a trace
that takes so long is of use to nobody. The project chooses the SDK, the exporter and the propagator; without an SDK no
span is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import get_ident
from time import time_ns
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from django_graphile_worker import __version__, conf
from django_graphile_worker.current import CurrentRun
from django_graphile_worker.jobs import JobSpec
from django_graphile_worker.logs.errors import class_path, cut_middle, error_text, redacted_and_cut
from django_graphile_worker.logs.errors import trace as traceback_of
from django_graphile_worker.signals import (
    FiringSchedule,
    cron_backfilled,
    cron_scheduled,
    pre_add_jobs,
    schedule_fired,
)
from django_graphile_worker.telemetry.observers import End, Ending, harmless, headers_of

SYSTEM = "graphile_worker"
_tracer = trace.get_tracer("django_graphile_worker", __version__)
# By the name of a schedule: its span, and when that ends. Of the workers that are about to fire it, one does, and only
# its span is ended, and so exported.
_firing: dict[str, tuple[Span, int]] = {}


def connect() -> None:
    """Connect the receivers that make the spans of adding jobs."""
    pre_add_jobs.connect(_receive_specs, weak=False, dispatch_uid=__name__)
    for signal in (schedule_fired, cron_scheduled, cron_backfilled):
        signal.connect(_receive_fired, weak=False, dispatch_uid=__name__)


# Where jobs are added.


def _receive_specs(*, specs: list[Any], schedule: FiringSchedule | None = None, **kwargs: Any) -> None:
    with harmless():
        # Whatever is no spec is refused later.
        added = {place: spec for place, spec in enumerate(specs) if isinstance(spec, JobSpec)}
        if carrier := _carrier_of(list(added.values()), schedule) if added else {}:
            for place, spec in added.items():
                specs[place] = spec.with_headers(carrier)


def _carrier_of(specs: Sequence[JobSpec], schedule: FiringSchedule | None) -> dict[str, str]:
    """Make a span for jobs that are added together, and return what connects their runs with it.

    The span has no ``messaging.message.id``: the jobs are inserted after it.
    """
    identifiers = {spec.identifier for spec in specs}
    attributes: dict[str, AttributeValue] = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": "send",
        "messaging.operation.name": "add_job",
    }
    name = "add_job"
    if len(identifiers) == 1:
        (identifier,) = identifiers
        name, attributes["messaging.destination.name"] = f"add_job {identifier}", identifier
    if len(specs) > 1:
        attributes["messaging.batch.message_count"] = len(specs)
    else:
        attributes |= _own_attributes(queue=specs[0].queue_name, priority=specs[0].priority)
    carrier: dict[str, str] = {}
    span = _tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
    propagate.inject(carrier, trace.set_span_in_context(span))
    if schedule is None:
        span.end()
    else:
        _firing[schedule.name] = (span, time_ns())
    return carrier


def _receive_fired(*, name: str = "", identifier: str = "", identifiers: Iterable[str] = (), **kwargs: Any) -> None:
    for fired in (name, identifier, *identifiers):
        if fired in _firing:
            span, ended_at = _firing.pop(fired)
            span.end(ended_at)


def _own_attributes(**values: str | int | None) -> dict[str, AttributeValue]:
    return {f"graphile_worker.{name}": value for name, value in values.items() if value is not None}


# Where they run.


def begin(run: CurrentRun) -> End:
    """Begin the span of a run, and make it the current span: those of the task are its children."""
    claim = run.claim
    # With baggage, and without what surrounds a job that runs in the process that added it.
    received = propagate.extract(headers_of(run), context=context.Context())
    producer = trace.get_current_span(received).get_span_context()
    surroundings = trace.set_span_in_context(trace.INVALID_SPAN, received)
    span = _tracer.start_span(
        f"run_job {run.identifier}",
        context=surroundings,
        kind=SpanKind.CONSUMER,
        links=[Link(producer)] if producer.is_valid else None,
        attributes={
            "messaging.system": SYSTEM,
            "messaging.operation.type": "process",
            "messaging.operation.name": "run_job",
            "messaging.destination.name": run.identifier,
            "messaging.message.id": str(claim.id),
            "messaging.client.id": claim.worker_id,
            **_own_attributes(
                attempt=claim.attempts,
                max_attempts=claim.max_attempts,
                queue=claim.queue_name,
                priority=claim.priority,
            ),
        },
    )
    token, thread = context.attach(trace.set_span_in_context(span, surroundings)), get_ident()

    def end(ending: Ending, error: BaseException | None) -> None:
        if get_ident() == thread:
            context.detach(token)
        try:
            span.set_attribute("graphile_worker.ending", ending)
            if ending == "failed" and error is not None:
                _note_error(span, error)
        finally:
            span.end()

    return end


def _note_error(span: Span, error: BaseException) -> None:
    """Note an error as ``record_exception()`` does, but without secrets and without the frames of the worker."""
    settings = conf.current()
    shorten = redacted_and_cut if settings.redact_errors else cut_middle
    text, kind = error_text(error), class_path(error).removeprefix("builtins.")
    stack = shorten(traceback_of(error), settings.max_error_length)
    attributes = {"exception.type": kind, "exception.message": text.partition(": ")[2], "exception.stacktrace": stack}
    span.set_attribute("error.type", kind)
    span.add_event("exception", attributes)
    span.set_status(Status(StatusCode.ERROR, text))
