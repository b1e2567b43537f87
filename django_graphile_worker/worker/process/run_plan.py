"""A worker process from its plan to its exit code: alone, as a supervisor, or as a child of the supervisor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.logs.console import set_up_logging, write_log
from django_graphile_worker.worker.process.banner import banner
from django_graphile_worker.worker.process.health_file import reported
from django_graphile_worker.worker.process.plan import Plan
from django_graphile_worker.worker.process.runner_group import build_runners
from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.process.worker_process import run_until_drained, run_until_stopped, run_with_signals
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.stop_request import StopState

Say = Callable[[str], None]


def prepare(plan: Plan, say: Say) -> list[Runner]:
    """Build the runners, set up the log, and show the banner."""
    runners = _build(plan)
    set_up_logging(verbosity=plan.verbosity, is_colored=plan.is_colored)
    if plan.verbosity:
        say(banner(runners, once=plan.once))
    return runners


def run_alone(plan: Plan, runners: list[Runner], request: StopState) -> int:
    """Run in this process, and return the exit code. Raises GraphileWorkerError when the worker cannot start."""
    with _written_log(), _database_errors_in_a_sentence(), _health_file(plan.health_file, runners):
        return run_with_signals(runners, request, once=plan.once, waits=plan.waits)


def run_children(plan: Plan, request: StopState) -> int:
    """Run several processes under a supervisor, and return the exit code."""
    # Late import: the supervisor loads multiprocessing, 5 ms that a single process does not need.
    from django_graphile_worker.worker.process.supervisor import Supervisor

    worker_timeout = max(place.settings.worker_timeout for place in plan.places())
    supervisor = Supervisor(
        plan.processes, run_as_child, {"plan": plan}, worker_timeout=worker_timeout, replaces=not plan.once
    )
    with _written_log(), handled_signals(request):
        return supervisor.run(request)


def run_as_child(request: StopState, arguments: dict[str, Any]) -> int:
    """Run a child of the supervisor, and return its exit code. Raises GraphileWorkerError when it cannot start.

    ``run_child()`` handles the signals of the child.
    """
    plan: Plan = arguments["plan"]
    set_up_logging(verbosity=plan.verbosity, is_colored=plan.is_colored)
    runners = _build(plan)
    for runner in runners:
        runner.worker.replaced_process = arguments.get("replaced")
    path = plan.health_file
    if path and plan.processes > 1:
        # Each child writes a health file of its own: PATH.0, PATH.1 and so on.
        path = f"{path}.{arguments.get('place', 0)}"
    health = reported(Path(path) if path else None, runners, arguments["supervisor"])
    with _written_log(), _database_errors_in_a_sentence(), health:
        if plan.once:
            return run_until_drained(runners, request)
        return run_until_stopped(runners, request, waits=plan.waits)


def _build(plan: Plan) -> list[Runner]:
    return build_runners(plan.places(), with_cron=plan.with_cron and not plan.once)


@contextmanager
def _written_log() -> Iterator[None]:
    """Write all lines of the log before anything else is written or the process ends, however the worker ends."""
    try:
        yield
    finally:
        write_log()


@contextmanager
def _health_file(path: str, runners: list[Runner]) -> Iterator[None]:
    if not path:
        yield
        return
    with reported(Path(path), runners):
        yield


@contextmanager
def _database_errors_in_a_sentence() -> Iterator[None]:
    """Turn an error of the database into the error that the command shows."""
    try:
        yield
    except psycopg.Error as error:
        # Late import: a worker that starts has no error to explain.
        from django_graphile_worker.worker.process.database_errors import in_a_sentence

        raise GraphileWorkerError(in_a_sentence(error)) from error
