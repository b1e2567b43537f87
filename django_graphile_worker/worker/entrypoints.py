"""Entry points for code that starts a worker: a script, a test, or a web server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from types import TracebackType
from typing import Any, Literal, TypedDict, Unpack

from django.core.exceptions import SynchronousOnlyOperation
from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_graphile_worker.exceptions import ConfigurationError, GraphileWorkerError, InvalidTypeError, SettingMistake
from django_graphile_worker.routing import Place, places_to_serve
from django_graphile_worker.worker.process.worker_process import build_runners, run_with_signals, shut_down, start_all
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.stop_request import REFUSED, StopRequest, WorkerStop, state_of

# Settings that a worker started by code cannot use, and what to do instead.
DATABASE = {"database": "expected databases=[...], the list of aliases to serve."}
PROCESSES = {
    "processes": "expected 1, as a worker started by code runs in the process of its caller. "
    "Use concurrency=..., `manage.py runworker --processes`, or more processes of your own."
}
RECYCLING = dict.fromkeys(
    ("max_jobs", "max_memory", "max_age"),
    "expected none, as nothing replaces the process of the caller. Use `manage.py runworker`.",
)
CRON = dict.fromkeys(
    ("crontab", "crontab_file", "crontab_time_zone"),
    "expected none, as it only runs jobs that exist already. Use run_worker() or Worker for recurring tasks.",
)


class OnceOptions(TypedDict, total=False):
    """Settings of ``run_once()``, in lower case; ``docs/reference/settings.md`` explains each."""

    schema: str
    concurrency: int
    processes: Literal[1]
    poll_interval: float | timedelta
    listen: bool
    prepared_statements: bool
    local_queue_size: int
    grace_period: float | timedelta
    heartbeat_interval: float | timedelta
    worker_timeout: float | timedelta
    statement_timeout: float | timedelta
    use_local_time: bool
    tasks: Sequence[str]
    exclude_tasks: Sequence[str]
    queue_labels: Sequence[str]
    forbidden_flags: Sequence[str] | Callable[[], Iterable[str]] | str
    timeout: float | timedelta | None
    stop_grace: float | timedelta
    middleware: Sequence[str]
    leftover_state: Literal["warn", "fail"]
    notify: bool
    keep_results: float | timedelta | None
    history: float | timedelta | None
    history_payloads: bool
    max_error_length: int
    redact_errors: bool
    log_success: bool
    statistics_retention: float | timedelta
    events_retention: float | timedelta


class WorkerOptions(OnceOptions, total=False):
    """Settings of ``run_worker()`` and ``Worker``: the settings of ``run_once()``, and the crontab."""

    crontab: str | Sequence[Any]
    crontab_file: str | PathLike[str] | None
    crontab_time_zone: str


def run_worker(
    *,
    databases: Sequence[str] = (),
    installations: Sequence[str] = (),
    stop: StopRequest | None = None,
    **overrides: Unpack[WorkerOptions],
) -> int:
    """Run jobs until SIGTERM or SIGINT, or until ``stop``, a ``StopRequest``, is called from another thread.

    ``databases`` and ``installations`` are the aliases to serve instead of the installation ``default``; ``overrides``
    are settings in lower case (``concurrency=20``). Return the exit code. Signals are handled on the main thread only.
    """
    request = _checked_stop(stop)
    places = _checked_places("run_worker", databases, installations, overrides)
    runners = build_runners(places)
    heed_test_guards([place.using for place in places])
    return run_with_signals(runners, request, once=False)


def run_once(
    *,
    databases: Sequence[str] = (),
    installations: Sequence[str] = (),
    stop: StopRequest | None = None,
    **overrides: Unpack[OnceOptions],
) -> int:
    """Run the jobs that are runnable now, then return the exit code."""
    request = _checked_stop(stop)
    places = _checked_places("run_once", databases, installations, overrides, with_cron=False)
    runners = build_runners(places, with_cron=False)
    heed_test_guards([place.using for place in places])
    return run_with_signals(runners, request, once=True)


class Worker:
    """A worker that runs in threads of this process: ``with Worker(concurrency=5): serve()``."""

    def __init__(
        self,
        *,
        databases: Sequence[str] = (),
        installations: Sequence[str] = (),
        **overrides: Unpack[WorkerOptions],
    ) -> None:
        self._places = _checked_places("Worker", databases, installations, overrides)
        self._lock = threading.Lock()
        # A runner for each database while the worker runs. A runner starts once, so each start() builds new runners.
        self._runners: list[Runner] = []

    @property
    def is_running(self) -> bool:
        """Was the worker started, and not stopped since?"""
        return bool(self._runners)

    def start(self) -> None:
        """Start the worker. A worker that was stopped may be started again."""
        with self._lock:
            if self._runners:
                raise GraphileWorkerError(
                    "Worker.start(): the worker runs already. Call stop() first, or create another Worker."
                )
            heed_test_guards([place.using for place in self._places])
            self._runners = build_runners(self._places)
            for runner in self._runners:
                runner.worker.on_refused = self._stop_soon
        try:
            start_all(self._runners)
        except BaseException:
            self.stop("it could not start")
            raise

    def stop(self, reason: str = "stop") -> bool:
        """Let running jobs end within the grace period; return True when every job has ended.

        Jobs that still run after the grace period are returned, and another worker may start them. A coroutine is
        cancelled, but Python cannot stop a thread: a ``def`` task that ignores ``helpers.abort`` runs until it returns
        or this process ends.
        """
        with self._lock:
            runners, self._runners = self._runners, []
        ending = shut_down(runners, reason)
        return ending.was_released and not ending.was_cut_off

    def _stop_soon(self, error: GraphileWorkerError) -> None:
        """Stop the worker on another thread: stop() waits for the part of the worker that calls this method."""
        threading.Thread(target=self.stop, args=[REFUSED], daemon=True).start()

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _checked_stop(stop: Any) -> WorkerStop | None:
    if stop is not None and not isinstance(stop, StopRequest):
        raise InvalidTypeError(
            f"stop: expected a StopRequest, got {stop!r}. Create a django_graphile_worker.StopRequest(), "
            "and call it to stop the worker."
        )
    return None if stop is None else state_of(stop)


def _checked_places(
    caller: str,
    databases: Sequence[str],
    installations: Sequence[str],
    overrides: Mapping[str, Any],
    *,
    with_cron: bool = True,
) -> tuple[Place, ...]:
    """Return the places to serve, with the overridden settings. Reject settings that the caller would ignore."""
    found = places_to_serve(databases, installations, change=lambda settings: settings.replace(**overrides))
    is_alone = overrides.get("processes", 1) == 1
    rejected = DATABASE | RECYCLING | ({} if is_alone else PROCESSES) | ({} if with_cron else CRON)
    mistakes = [
        SettingMistake(key=name.upper(), message=f"{caller}({name}=...): {rejected[name]}")
        for name in overrides
        if name in rejected
    ]
    if mistakes:
        raise ConfigurationError(mistakes=mistakes)
    return found


def heed_test_guards(aliases: Sequence[str]) -> None:
    """Raise the error of a test framework that forbids the use of these databases.

    The test frameworks of Django and pytest-django guard Django's own connections, but the worker opens others: without
    a test database, the worker would run the jobs of the real database.
    """
    for alias in aliases:
        connection = connections[alias]
        # Django replaces the first method, pytest-django the second.
        for name in ("cursor", "ensure_connection"):
            if _is_replaced(connection, name):
                _call(connection, name)


def _is_replaced(connection: BaseDatabaseWrapper, name: str) -> bool:
    """Return True if the method is not Django's own, which would open a connection to a server that may not answer."""
    return name in vars(connection) or not getattr(connection, name).__module__.startswith("django.db.")


def _call(connection: BaseDatabaseWrapper, name: str) -> None:
    was_open = connection.connection is not None
    # These are not the errors of a guard. If the database is down, the worker's own connections report it; if the
    # caller is a coroutine, they work nevertheless.
    with contextlib.suppress(Error, SynchronousOnlyOperation):
        getattr(connection, name)()
    if not was_open and connection.connection is not None:
        connection.close()
