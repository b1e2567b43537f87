"""Sentry: a transaction and a scope for each run, an issue for each job that has failed for good, and check-ins.

The project calls ``sentry_sdk.init()`` itself; nothing is done in a process that does not.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from threading import get_ident
from time import time
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import sentry_sdk
from django.utils.text import slugify
from sentry_sdk.crons import capture_checkin
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import use_isolation_scope
from sentry_sdk.utils import event_from_exception

from django_graphile_worker import conf, signals
from django_graphile_worker.crontab.patterns import SHORTHANDS
from django_graphile_worker.current import CurrentRun
from django_graphile_worker.exceptions import TaskTimeout
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.telemetry.observers import End, Ending, harmless, headers_of

ORIGIN = "auto.queue.graphile_worker"
# The headers of a run of a schedule: its monitor, how that is configured, and the id that all its attempts share.
MONITOR, MONITOR_CONFIG, CHECK_IN = "sentry-monitor", "sentry-monitor-config", "sentry-check-in"
MAX_SLUG_LENGTH = 50
# Loggers that log a failure which is reported here. Sentry would report it a second time.
IGNORED_LOGGERS = ("django_graphile_worker.jobs",)
# The framework logs the failures of its tasks as well, in the process that runs them.
IGNORED_LOGGERS_OF_WORKERS = ("django.tasks", "django_tasks")
STATUS = {
    "succeeded": "ok",
    "failed": "internal_error",
    "retry_later": "aborted",
    "interrupted": "aborted",
    "cancelled": "cancelled",
}
# What an event says of a job beside its tags.
FACTS = ("priority", "run_at", "created_at", "max_attempts")
# Their frames are left out of tracebacks.
WORKER_MODULES = (
    "django_graphile_worker.worker.",
    "django_graphile_worker.testing.",
    "django_graphile_worker.backend.",
)
_INTERVALS = (("day", 86_400), ("hour", 3_600), ("minute", 60))

# The scope of each run that has failed, and what its trace is called in an event. The signal about the failure is sent
# when the run has left its scope.
_failed_runs: WeakKeyDictionary[CurrentRun, tuple[Any, dict[str, Any]]] = WeakKeyDictionary()


def connect() -> None:
    """Connect the receivers: of jobs that are added, and of jobs that end without success, wherever that happens."""
    for signal, receiver in (
        (signals.pre_add_jobs, _receive_specs),
        (signals.job_permanently_failed, _receive_failure),
        (signals.job_permanently_failed, _receive_end),
        (signals.job_cancelled, _receive_end),
        (signals.job_expired, _receive_end),
    ):
        signal.connect(receiver, weak=False, dispatch_uid=f"{__name__}.{receiver.__name__}")
    for name in IGNORED_LOGGERS:
        ignore_logger(name)


# Where jobs are added.


def _receive_specs(*, specs: list[Any], schedule: signals.FiringSchedule | None = None, **kwargs: Any) -> None:
    if not sentry_sdk.get_client().is_active():
        return
    with harmless():
        # Whatever is no spec is refused later.
        added = {place: spec for place, spec in enumerate(specs) if isinstance(spec, JobSpec)}
        trace = _trace_headers(list(added.values())) if added and schedule is None else {}
        for place, spec in added.items():
            # The run of a schedule continues no trace: nothing but the time has caused it.
            headers = _with_baggage(trace, spec) if schedule is None else monitor_headers(schedule)
            specs[place] = spec.with_headers(headers)


def _trace_headers(specs: list[JobSpec]) -> dict[str, str]:
    identifiers = {spec.identifier for spec in specs}
    name = identifiers.pop() if len(identifiers) == 1 else "add_jobs"
    is_traced = sentry_sdk.get_current_span() is not None
    with sentry_sdk.start_span(op="queue.publish", name=name, origin=ORIGIN) if is_traced else nullcontext() as span:
        if span is not None:
            span.set_data("messaging.system", "graphile_worker")
            span.set_data("messaging.destination.name", name)
            if len(specs) > 1:
                span.set_data("messaging.batch.message_count", len(specs))
        return dict(sentry_sdk.get_current_scope().iter_trace_propagation_headers())


def _with_baggage(trace: Mapping[str, str], spec: JobSpec) -> dict[str, str]:
    """Return the headers of the trace, with the baggage that the spec has already."""
    entries = [(spec.headers or {}).get("baggage"), trace.get("baggage")]
    joined = ",".join(str(entry) for entry in entries if entry)
    return {**trace, "baggage": joined} if joined else dict(trace)


def monitor_headers(schedule: signals.FiringSchedule) -> dict[str, str]:
    """Return the headers by which a run checks in; none for times that Sentry cannot expect.

    What is left out of the configuration, such as margins, stays as people set it in Sentry.
    """
    times = _times(schedule)
    if times is None:
        return {}
    config = {"schedule": times, "timezone": schedule.time_zone}
    return {MONITOR: slug_of(schedule.name), MONITOR_CONFIG: json.dumps(config), CHECK_IN: uuid4().hex}


def _times(schedule: signals.FiringSchedule) -> dict[str, Any] | None:
    if schedule.cron is not None:
        fields = SHORTHANDS.get(schedule.cron.strip(), schedule.cron).split()
        # Implementations of cron disagree about lines that restrict both the day of the month and that of the week.
        is_clear = len(fields) == 5 and "*" in (fields[2], fields[4])
        return {"type": "crontab", "value": " ".join(fields)} if is_clear else None
    if schedule.interval is not None:
        seconds = schedule.interval.total_seconds()
        for unit, length in _INTERVALS:
            if seconds % length == 0:
                return {"type": "interval", "value": int(seconds // length), "unit": unit}
    return None


def slug_of(name: str) -> str:
    """Return the name of a schedule as the name of a monitor, which has few characters and is no number."""
    slug = slugify(re.sub(r"[^\w\s-]", "-", name))[:MAX_SLUG_LENGTH].strip("-_")
    return slug if slug and not slug.isdigit() else f"schedule-{zlib.crc32(name.encode()):08x}"


# Where they run.


def begin(run: CurrentRun) -> End:
    """Begin the transaction of a run, in a scope of its own."""
    if not sentry_sdk.get_client().is_active():
        return lambda ending, error: None
    for name in IGNORED_LOGGERS_OF_WORKERS:
        ignore_logger(name)
    claim, headers, began = run.claim, headers_of(run), time()
    tags = _tags(run.identifier, claim.queue_name, claim.id, claim.attempts, claim.worker_id)
    with ExitStack() as stack:
        scope = stack.enter_context(sentry_sdk.isolation_scope())
        # The thread has run other jobs.
        scope.clear_breadcrumbs()
        scope.set_tags(tags)
        transaction = stack.enter_context(_transaction(run, headers, began))
        scope_of_run = stack.pop_all()
    if claim.attempts == 1:
        # Any program can set headers.
        with harmless():
            check_in(headers, "in_progress")

    thread = get_ident()

    def end(ending: Ending, error: BaseException | None) -> None:
        with scope_of_run if get_ident() == thread else _finished_elsewhere(scope, transaction):
            transaction.set_status("deadline_exceeded" if isinstance(error, TaskTimeout) else STATUS[ending])
            if ending == "failed":
                _failed_runs[run] = (scope, transaction.get_trace_context())
            elif ending == "succeeded":
                with harmless():
                    check_in(headers, "ok", duration=time() - began)

    return end


@contextmanager
def _finished_elsewhere(scope: Any, transaction: Any) -> Iterator[None]:
    """Finish the transaction of a run that ends without its thread, which keeps its scope."""
    with use_isolation_scope(scope):
        yield
        transaction.finish()


def _transaction(run: CurrentRun, headers: Mapping[str, str], began: float) -> Any:
    claim, name = run.claim, run.identifier
    transaction = sentry_sdk.start_transaction(
        sentry_sdk.continue_trace(dict(headers), op="queue.process", name=name, source="task", origin=ORIGIN),
        custom_sampling_context={"graphile_worker": {"task": name, "attempt": claim.attempts}},
    )
    transaction.set_data("messaging.system", "graphile_worker")
    transaction.set_data("messaging.destination.name", name)
    transaction.set_data("messaging.message.id", str(claim.id))
    transaction.set_data("messaging.message.retry.count", claim.attempts - 1)
    # In milliseconds, from the time at which the job, or its retry, was due.
    transaction.set_data("messaging.message.receive.latency", max(began - claim.run_at_epoch, 0) * 1000)
    return transaction


def _tags(task: str, queue: str | None, job_id: int, attempt: int, worker_id: str) -> dict[str, str]:
    tags = {"task": task, "job_id": str(job_id), "attempt": str(attempt), "worker_id": worker_id}
    return tags if queue is None else {**tags, "queue": queue}


def check_in(headers: Mapping[str, str], status: str, *, duration: float | None = None) -> None:
    """Tell the monitor of a schedule about a run; do nothing for other jobs."""
    if MONITOR not in headers:
        return
    config = json.loads(headers[MONITOR_CONFIG]) if status == "in_progress" else None
    capture_checkin(
        monitor_slug=headers[MONITOR],
        check_in_id=headers[CHECK_IN],
        status=status,
        duration=duration,
        monitor_config=config,
    )


# Where they end without success.


def _receive_end(*, job: Job, **kwargs: Any) -> None:
    with harmless():
        check_in(job.headers, "error")


def _receive_failure(*, job: Job, error: BaseException, worker_id: str = "", **kwargs: Any) -> None:
    client = sentry_sdk.get_client()
    if not client.is_active():
        return
    with harmless(), _scope_of_failure(job) as trace:
        event, hint = event_from_exception(
            error, client_options=client.options, mechanism={"type": "graphile_worker", "handled": False}
        )
        for value in event["exception"]["values"]:
            _clean(value)
        event["transaction"] = job.task_identifier
        event["tags"] = _tags(job.task_identifier, job.queue_name, job.id, job.attempts, worker_id)
        # Without the payload. Those who may see it find it on the page of the job.
        event["contexts"] = {"job": {name: getattr(job, name) for name in FACTS}}
        if trace is not None:
            event["contexts"]["trace"] = trace
        sentry_sdk.capture_event(event, hint)


@contextmanager
def _scope_of_failure(job: Job) -> Iterator[dict[str, Any] | None]:
    """Enter the scope of the run that has failed, or an empty one for a job that ended with its worker."""
    attempt = (job.id, job.attempts)
    run = next((run for run in list(_failed_runs) if (run.claim.id, run.claim.attempts) == attempt), None)
    kept = None if run is None else _failed_runs.pop(run, None)
    if kept is None:
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            yield None
    else:
        scope, trace = kept
        with use_isolation_scope(scope):
            yield trace


def _clean(exception: dict[str, Any]) -> None:
    """Remove secrets, the frames of the worker, and the variables of our other frames, which have the payload."""
    if conf.current().redact_errors and exception.get("value"):
        exception["value"] = redact_text(exception["value"])
    frames = (exception.get("stacktrace") or {}).get("frames") or []
    for frame in frames:
        if _module(frame).startswith("django_graphile_worker."):
            frame.pop("vars", None)
    # An error of the worker itself keeps its frames.
    frames[:] = [frame for frame in frames if not _module(frame).startswith(WORKER_MODULES)] or frames


def _module(frame: Mapping[str, Any]) -> str:
    return frame.get("module") or ""
