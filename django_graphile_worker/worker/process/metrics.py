"""What ``runworker --metrics-port`` serves: ``/metrics``, ``/live`` and ``/ready``.

One process serves, for all of its children if it is a supervisor. Each child sends what it counts, and every second
whether it is ready, through a pipe that all of them share.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http import HTTPStatus
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import psycopg

from django_graphile_worker.routing import Place
from django_graphile_worker.sql.inspection.gauges import Gauges
from django_graphile_worker.telemetry import NO_PROMETHEUS
from django_graphile_worker.telemetry.counts import Counts, Inbox, Outbox, Tally
from django_graphile_worker.telemetry.http_server import Answer, serving, text_answer, verdict
from django_graphile_worker.telemetry.readings import READ_TIMEOUT, CachedGauges, limited_gauges
from django_graphile_worker.text import readable_duration
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.process.plan import Plan
from django_graphile_worker.worker.process.supervisor import Supervisor
from django_graphile_worker.worker.reporting.metrics import MetricsRecorder
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.service import Service

# Seconds between two reports of a child, and after which a child that has not reported is not ready.
REPORT_INTERVAL = 1.0
REPORT_VALID = 5.0
# Seconds after which a child that does not report is gone.
REPORT_KEPT = 60.0
# Seconds between two reads of the pipe while nobody asks.
READ_INTERVAL = 0.25
# Characters of a problem, and how many problems a child reports: they fit into one line of the pipe, also with escapes.
MAX_PROBLEM = 300
MAX_PROBLEMS = 2

Question = Callable[[], list[str]]

logger = logging.getLogger("django_graphile_worker.worker")


# A process without children.


@contextmanager
def served(plan: Plan, runners: Sequence[Runner]) -> Iterator[None]:
    """Serve the metrics and probes of these workers inside the block, if a port is set."""
    address = plan.metrics_port
    if address is None:
        yield
        return
    tally = Tally()
    count(runners, tally)
    places = [runner.place for runner in runners]
    live, ready = lambda: why_not_live(runners), lambda: why_not_ready(runners)
    with _endpoint(address, places, tally, live=live, ready=ready) as close_socket:
        # A process that a job forks may outlive this one.
        fork_guard.call_in_child("metrics", close_socket)
        try:
            yield
        finally:
            fork_guard.call_in_child("metrics", None)


def count(runners: Sequence[Runner], counts: Counts) -> None:
    for runner in runners:
        runner.worker.metrics = MetricsRecorder(runner.worker, counts)


def why_not_live(runners: Sequence[Runner]) -> list[str]:
    """Return the parts of the workers that have died; a database that does not answer is no reason for a restart."""
    return [f"{runner.label}: the {part} has ended" for runner in runners for part in runner.worker.dead()]


def why_not_ready(runners: Sequence[Runner]) -> list[str]:
    return [f"{runner.label}: {why}" for runner in runners if (why := _why_not_ready(runner))]


def _why_not_ready(runner: Runner) -> str:
    worker = runner.worker
    if worker.is_stopping:
        return "the worker stops"
    start = runner.delayed_start
    troubles = (worker.heartbeat.trouble, worker.fetcher.trouble, start.trouble if start else None)
    trouble = next((each for each in troubles if isinstance(each, psycopg.Error)), None)
    if trouble is not None:
        return f"the database does not answer: {' '.join(str(trouble).split())}"[:MAX_PROBLEM]
    if not worker.heartbeat.holds_lease:
        return "no heartbeat is written"
    return ""


# A supervisor and its children.


@contextmanager
def served_for_children(plan: Plan, places: Sequence[Place]) -> Iterator[ChildrenMetrics | None]:
    """Serve what the children send, and the probes, inside the block, if a port is set."""
    address = plan.metrics_port
    if address is None:
        yield None
        return
    with ExitStack() as stack:
        children = ChildrenMetrics(*map(stack.enter_context, Pipe(duplex=False)))
        reader = threading.Thread(target=children.keep_reading, name="graphile-worker-metrics", daemon=True)
        reader.start()
        stack.callback(reader.join)
        stack.callback(children.stopped.set)
        stack.enter_context(
            _endpoint(
                address,
                places,
                children.tally,
                live=children.why_not_live,
                ready=children.why_not_ready,
                refresh=children.read,
            )
        )
        yield children


class ChildrenMetrics:
    """What the children of a supervisor have sent."""

    def __init__(self, receiver: Connection, sender: Connection) -> None:
        self.tally = Tally()
        self.stopped = threading.Event()
        # Several threads read.
        self._reading = threading.Lock()
        # The end at which children write.
        self.sender = sender
        self.supervisor: Supervisor | None = None
        # It is closed when nothing refers to it.
        self._receiver = receiver
        self._inbox = Inbox(receiver.fileno(), self.tally)
        # By process id: why the child is not ready, as its last report says, and when that arrived.
        self._reports: dict[int, tuple[float, Sequence[str]]] = {}

    def keep_reading(self) -> None:
        while not self.stopped.wait(READ_INTERVAL):
            self.read()

    def read(self) -> None:
        with self._reading:
            now = time.monotonic()
            reports = {report["pid"]: (now, report["problems"]) for report in self._inbox.read()}
            known = {pid: each for pid, each in self._reports.items() if now - each[0] < REPORT_KEPT}
            self._reports = known | reports

    def why_not_live(self) -> list[str]:
        """Return why the supervisor does not watch its children: it replaces a child that hangs by itself."""
        seconds = 0.0 if self.supervisor is None else self.supervisor.seconds_since_turn()
        if self.supervisor is None or seconds < self.supervisor.worker_timeout:
            return []
        return [f"the supervisor has not looked after its processes for {readable_duration(seconds)}"]

    def why_not_ready(self) -> list[str]:
        """Return nothing if a child is ready, else the reasons of all."""
        self.read()
        found = []
        for pid, (arrived_at, problems) in self._reports.items():
            silent = time.monotonic() - arrived_at
            if silent > REPORT_VALID and not _is_alive(pid):
                # Another has taken its place.
                continue
            if silent > REPORT_VALID:
                found.append(f"process {pid}: it has not reported for {readable_duration(round(silent))}")
            elif not problems:
                return []
            else:
                found += [f"process {pid}: {problem}" for problem in problems]
        return found or ["no process has started yet"]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def sent(runners: Sequence[Runner], connection: Connection | None) -> Iterator[None]:
    """Send what the workers of this child count, and their state, to the supervisor inside the block."""
    if connection is None:
        yield
        return
    outbox = Outbox(connection.fileno())
    count(runners, outbox)
    reporter = Reporter(runners, outbox)
    reporter.start()
    try:
        yield
    finally:
        reporter.stop()
        reporter.join(1.0)


class Reporter(Service):
    """The service of a child that reports whether it is ready, and sends counts for which the pipe was full."""

    name = "metrics"

    def __init__(self, runners: Sequence[Runner], outbox: Outbox) -> None:
        super().__init__(on_trouble=lambda *_: None)
        self._runners = runners
        self._outbox = outbox

    def step(self) -> float:
        self._outbox.flush()
        problems = why_not_live(self._runners) + why_not_ready(self._runners)
        self._outbox.send({"pid": os.getpid(), "problems": [each[:MAX_PROBLEM] for each in problems[:MAX_PROBLEMS]]})
        return REPORT_INTERVAL

    def close(self) -> None:
        self.step()


# The endpoint.


def _endpoint(
    address: tuple[str, int],
    places: Sequence[Place],
    tally: Tally,
    *,
    live: Question,
    ready: Question,
    refresh: Callable[[], None] | None = None,
) -> AbstractContextManager[Callable[[], None]]:
    if find_spec("prometheus_client") is None:
        logger.warning("%s. Until then, /metrics answers with an error; /live and /ready work.", NO_PROMETHEUS)
    gauges = {place.label: CachedGauges(_reader(place)) for place in places}

    def metrics() -> Answer:
        if find_spec("prometheus_client") is None:
            return text_answer(HTTPStatus.NOT_IMPLEMENTED, NO_PROMETHEUS)
        from django_graphile_worker.telemetry import prometheus

        readings = {label: each.get() for label, each in gauges.items()}
        if refresh is not None:
            refresh()
        content = prometheus.exposition(readings, tally.cells())
        content += prometheus.project_metrics(is_supervisor=refresh is not None)
        return Answer(HTTPStatus.OK, content, prometheus.CONTENT_TYPE)

    host, port = address
    routes = {"/metrics": metrics, "/live": lambda: verdict(live()), "/ready": lambda: verdict(ready())}
    return serving(host, port, routes)


def _reader(place: Place) -> Callable[[], Gauges]:
    """Return a function that reads the gauges on a connection of its own, which it closes."""

    def read() -> Gauges:
        database = Database(place.using, place.settings, part="metrics", deadline=READ_TIMEOUT)
        try:
            with database.connection().transaction(), database.cursor() as cursor:
                return limited_gauges(cursor, place)
        finally:
            database.close()

    return read
