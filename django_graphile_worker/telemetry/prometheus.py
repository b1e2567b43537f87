"""The metrics in the format of Prometheus, with the package prometheus-client."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from django_graphile_worker.sql.inspection.gauges import Gauges, TaskGauges
from django_graphile_worker.telemetry.counts import (
    BUCKETS,
    CLAIMED,
    OUTCOMES,
    RETURNED,
    RUN,
    TIMED_OUT,
    WAIT,
    Cell,
    Key,
    buckets,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
_STATES = ("ready", "scheduled", "running", "retrying", "failed")
_LABELS = ("database", "task", "queue")

Cells = Mapping[Key, Cell]
# By the label of the database; None for one that did not answer.
Readings = Mapping[str, Gauges | None]


def exposition(readings: Readings, cells: Cells | None = None) -> bytes:
    """Return the gauges of these databases, and the counters of a worker."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*_gauges(readings), *([] if cells is None else _counters(cells))]))
    return generate_latest(registry)


def project_metrics(*, is_supervisor: bool) -> bytes:
    """Return what the code of the project counts, of all processes that share a directory for that.

    Without such a directory, a supervisor knows nothing of what its children count.
    """
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return b"" if is_supervisor else generate_latest(REGISTRY)
    registry = CollectorRegistry(auto_describe=False)
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


class _Collected:
    """Metrics that were read before."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _counters(cells: Cells) -> Iterator[Metric]:
    yield _counter("jobs_claimed", "Jobs that this worker has claimed.", cells, CLAIMED)
    yield _counter("jobs_returned", "Jobs that this worker has claimed and returned unbegun.", cells, RETURNED)
    ended = CounterMetricFamily(
        "graphile_worker_jobs",
        "Jobs that this worker has run or ended, by outcome; a job that is tried again counts each time.",
        labels=(*_LABELS, "outcome"),
    )
    for key, cell in cells.items():
        for outcome in OUTCOMES:
            ended.add_metric((*key, outcome), cell.get(outcome, 0))
    yield ended
    yield _counter(
        "jobs_timed_out", "Runs that were stopped at their time limit; they have also failed.", cells, TIMED_OUT
    )
    yield _histogram("job_wait_seconds", "Time from the moment a job was due to its start.", cells, WAIT)
    yield _histogram("job_run_seconds", "Time from the start of a job to its end.", cells, RUN)


def _counter(name: str, text: str, cells: Cells, counted: str) -> Metric:
    metric = CounterMetricFamily(f"graphile_worker_{name}", text, labels=_LABELS)
    for key, cell in cells.items():
        metric.add_metric(key, cell.get(counted, 0))
    return metric


def _histogram(name: str, text: str, cells: Cells, histogram: str) -> Metric:
    metric = HistogramMetricFamily(f"graphile_worker_{name}", text, labels=_LABELS)
    bounds = [*map(str, BUCKETS), "+Inf"]
    for key, cell in cells.items():
        numbers = buckets(histogram, cell)
        metric.add_metric(key, list(zip(bounds, numbers, strict=True)), cell.get(f"{histogram} sum", 0.0))
    return metric


def _gauges(readings: Readings) -> Iterator[Metric]:
    up = _gauge("up", "Whether the database of the queue answered this scrape.")
    jobs = _gauge("backlog_jobs", "Jobs in the queue, by state.", "task", "state")
    oldest = _gauge("oldest_ready_seconds", "How long the oldest job that is ready has waited.", "task")
    workers = _gauge("workers", "Workers that are alive, in the whole fleet.")
    slots = _gauge("slots", "Jobs that the live workers can run at once.", "state")
    pauses = _gauge("pauses", "Pauses of queues, tasks and flags.", "kind")
    backlog = _gauge("backlog_seconds", "Time that one slot would take for the ready jobs.")
    per_slot = _gauge("backlog_seconds_per_slot", "Time that the slots of all live workers take for the ready jobs.")
    for database, gauges in readings.items():
        up.add_metric([database], gauges is not None)
        if gauges is None:
            continue
        for task in gauges.tasks:
            _add_task(jobs, oldest, database, task)
        workers.add_metric([database], gauges.workers)
        slots.add_metric([database, "in_use"], gauges.slots_in_use)
        slots.add_metric([database, "free"], gauges.slots - gauges.slots_in_use)
        for kind in ("queue", "task", "flag"):
            pauses.add_metric([database, kind], gauges.pauses.get(kind, 0))
        backlog.add_metric([database], gauges.backlog_seconds)
        per_slot.add_metric([database], gauges.backlog_seconds_per_slot)
    return iter((up, jobs, oldest, workers, slots, pauses, backlog, per_slot))


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"graphile_worker_{name}", text, labels=("database", *labels))


def _add_task(jobs: GaugeMetricFamily, oldest: GaugeMetricFamily, database: str, task: TaskGauges) -> None:
    for state in _STATES:
        jobs.add_metric([database, task.identifier, state], getattr(task, state))
    oldest.add_metric([database, task.identifier], task.oldest_ready_seconds)
