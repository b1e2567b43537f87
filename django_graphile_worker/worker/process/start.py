"""The start of ``runworker``: from its plan to its exit code.

A plan runs as a process that watches for changes of the code (``--reload``), as a worker in this process, once or until
it is stopped, or as several processes under a supervisor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from typing import Any

import psycopg
from django.db import connections

from django_graphile_worker import __version__, conf
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.logs.console import set_up_logging, write_log
from django_graphile_worker.registry import tasks as registered_tasks
from django_graphile_worker.worker.process import reloader
from django_graphile_worker.worker.process.health import reported
from django_graphile_worker.worker.process.metrics import sent, served, served_for_children
from django_graphile_worker.worker.process.plan import Plan, is_watched
from django_graphile_worker.worker.process.recycling import recycled
from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.process.supervisor import Supervisor
from django_graphile_worker.worker.process.systemd import Systemd
from django_graphile_worker.worker.process.worker_process import (
    build_runners,
    collect_less_often,
    end_process,
    in_a_sentence,
    run_until_drained,
    run_until_stopped,
    run_with_signals,
)
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.stop_request import WorkerStop

Say = Callable[[str], None]

TASKS_SHOWN = 12


def start(plan: Plan, *, say: Say, complain: Say, owns_process: bool) -> int:
    """Run the worker as the plan describes, and return the exit code.

    ``say`` shows a text to the user, ``complain`` shows an error. Raises GraphileWorkerError when the worker cannot
    run. With ``owns_process``, a process in which a job still runs ends within this function; without it, as under
    call_command(), the function always returns.
    """
    if owns_process:
        collect_less_often()
    if plan.reload and not is_watched():
        return reloader.keep_running(say)
    watched = reloader.WatchedRequest() if is_watched() else None
    request = watched or WorkerStop()
    try:
        with reloader.watched(watched, with_code=plan.reload) if watched else nullcontext():
            code = _run(plan, say, request)
        if watched and plan.reload and watched.is_for_change:
            code = reloader.CHANGED
    except GraphileWorkerError as error:
        if not (owns_process and request.is_made and request.leaves_jobs_behind):
            raise
        complain(str(error))
        code = error.exit_code
    finally:
        if watched is None:
            # Otherwise threads write to the request until the process ends, which is soon.
            request.close()
    if owns_process and request.is_made:
        end_process(request, code)
    return code


def _run(plan: Plan, say: Say, request: WorkerStop) -> int:
    """Run one process or several; return the exit code."""
    places = plan.places()
    runners = prepare(plan, say)
    return run_children(plan, request) if plan.needs_supervisor(places) else run_alone(plan, runners, request)


def prepare(plan: Plan, say: Say) -> list[Runner]:
    """Build the runners, set up the log, and show the banner."""
    runners = _build(plan)
    _set_up_logging(plan)
    if plan.verbosity and conf.current().log_format == "text":
        say(banner(runners, once=plan.once))
    return runners


def _set_up_logging(plan: Plan, *, is_child: bool = False) -> None:
    is_json = conf.current().log_format == "json"
    # A child does not repeat that the setting has no effect.
    set_up_logging(verbosity=plan.verbosity, is_colored=plan.is_colored, is_json=is_json, complains=not is_child)


def run_alone(plan: Plan, runners: list[Runner], request: WorkerStop) -> int:
    """Run in this process, and return the exit code. Raises GraphileWorkerError when the worker cannot start."""
    systemd = Systemd.from_environment(grace_period=max(runner.settings.grace_period for runner in runners))
    request.on_stopping = systemd.report_stopping
    with (
        _written_log(),
        _database_errors_in_a_sentence(),
        reported(plan.health_file, runners, systemd=systemd),
        served(plan, runners),
    ):
        return run_with_signals(runners, request, once=plan.once, waits=plan.waits)


def run_children(plan: Plan, request: WorkerStop) -> int:
    """Run several processes under a supervisor, and return the exit code."""
    places = plan.places()
    systemd = Systemd.from_environment(grace_period=max(place.settings.grace_period for place in places))
    with _written_log(), handled_signals(request), served_for_children(plan, places) as metrics:
        supervisor = Supervisor(
            plan.processes,
            run_as_child,
            {"plan": plan, "metrics": None if metrics is None else metrics.sender},
            worker_timeout=max(place.settings.worker_timeout for place in places),
            replaces=not plan.once,
            systemd=systemd,
        )
        if metrics is not None:
            metrics.supervisor = supervisor
        return supervisor.run(request)


def run_as_child(request: WorkerStop, arguments: dict[str, Any]) -> int:
    """Run a child of the supervisor, and return its exit code. Raises GraphileWorkerError when it cannot start.

    ``run_child()`` handles the signals of the child.
    """
    plan: Plan = arguments["plan"]
    _set_up_logging(plan, is_child=True)
    runners = _build(plan)
    for runner in runners:
        runner.worker.replaced_process = arguments.get("replaced")
        runner.worker.is_successor = arguments.get("is_successor", False)
    path = plan.health_file
    if path and plan.processes > 1:
        # Each child writes a health file of its own: PATH.0, PATH.1 and so on.
        path = f"{path}.{arguments.get('place', 0)}"
    supervisor = arguments["supervisor"]
    with (
        _written_log(),
        _database_errors_in_a_sentence(),
        reported(path, runners, supervisor),
        sent(runners, arguments["metrics"]),
    ):
        if plan.once:
            return run_until_drained(runners, request)
        with recycled(plan.settings, runners, request, supervisor, arguments.get("spawned_at", 0.0)):
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
def _database_errors_in_a_sentence() -> Iterator[None]:
    """Turn an error of the database into the error that the command shows."""
    try:
        yield
    except psycopg.Error as error:
        raise GraphileWorkerError(in_a_sentence(error)) from error


# The text that is shown before the worker starts.


def banner(runners: Sequence[Runner], *, once: bool) -> str:
    """Return a block of text about the workers that start, and how to stop them."""
    lines = [f"django-graphile-worker {__version__}"]
    for runner in runners:
        lines += [f"  {name:<12} {value}" for name, value in _facts(runner, once=once)]
    lines.append("Stops with Ctrl-C: once to finish what runs, twice to stop at once.")
    return "\n".join(lines)


def _facts(runner: Runner, *, once: bool) -> list[tuple[str, str]]:
    settings = runner.settings
    processes = f" in each of {settings.processes} processes" if settings.processes > 1 else ""
    address = None if once else settings.metrics_port
    metrics = [] if address is None else [("metrics", f"/metrics, /live and /ready on port {address[1]}")]
    installation = [("installation", runner.place.installation)] if conf.are_installations_named() else []
    return [
        *installation,
        ("database", _database_address(runner.place.using)),
        ("schema", settings.schema),
        ("tasks", _tasks(runner)),
        ("concurrency", f"{settings.concurrency}{processes}"),
        ("recurring", _recurring(runner)),
        ("woken by", _woken_by(runner, once=once)),
        *metrics,
    ]


def _recurring(runner: Runner) -> str:
    if not runner.worker.fires:
        return "left to other workers"
    return _listed([*(item.name for item in runner.worker.cron_items), *runner.worker.every]) or "none in code"


def _tasks(runner: Runner) -> str:
    if runner.worker.directory.finds_tasks:
        known = _listed(sorted(runner.worker.directory.tasks))
        return f"{known or 'none yet'}, and Django tasks, which are imported by the names of their jobs"
    there = sorted(registered_tasks.identifiers())
    if not there:
        return "none: write functions with @task in an app's tasks.py"
    empty = [glob for glob in runner.settings.tasks if not any(fnmatchcase(name, glob) for name in there)]
    unmatched = f"nothing matches {', '.join(map(repr, empty))}" if empty else ""
    if runner.worker.directory.tasks:
        return _listed(sorted(runner.worker.directory.tasks)) + (f"; {unmatched}" if unmatched else "")
    excluded = ", ".join(map(repr, runner.settings.exclude_tasks))
    return f"none: {unmatched or f'all are excluded by {excluded}'}. There are: {_listed(there)}"


def _woken_by(runner: Runner, *, once: bool) -> str:
    if once:
        return "nothing: runs what is runnable, then exits"
    poll = f"a poll every {runner.settings.poll_interval:g} s"
    return f"LISTEN, and {poll}" if runner.settings.listen else poll


def _database_address(alias: str) -> str:
    settings: dict[str, Any] = connections.settings[alias]
    host = settings.get("HOST") or "local socket"
    port = f":{settings['PORT']}" if settings.get("PORT") else ""
    return f"{alias} ({settings.get('NAME')} at {host}{port})"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - TASKS_SHOWN} more" if len(names) > TASKS_SHOWN else ""
    return ", ".join(names[:TASKS_SHOWN]) + more
