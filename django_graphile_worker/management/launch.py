"""Starts what a command line asks for: one process or several, once or for good."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psycopg

from django_graphile_worker import conf
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.management import terminal
from django_graphile_worker.management.plan import Plan
from django_graphile_worker.worker.entrypoints import build_runners, supervised
from django_graphile_worker.worker.process.process import run_until_drained, run_until_stopped
from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.stop_request import StopState

Say = Callable[[str], None]


def run(plan: Plan, *, say: Say, stop: StopState) -> int:
    """Run a worker, or several under a supervisor; the exit code."""
    runners = _build(plan)
    terminal.set_up_logging(plan)
    if plan.verbosity:
        say(terminal.banner(runners, plan))
    if plan.settings.processes == 1:
        with _health_file(plan.health_file, runners):
            return supervised(runners, stop, once=plan.once, waits=plan.waits)
    return _supervise(plan, stop)


def _supervise(plan: Plan, request: StopState) -> int:
    # Here, as it brings multiprocessing along: 5 ms that one process alone need not spend.
    from django_graphile_worker.worker.process.supervisor import Supervisor

    supervisor = Supervisor(plan.settings.processes, run_in_child, {"plan": _portable(plan)}, replaces=not plan.once)
    with handled_signals(request):
        return supervisor.run(request)


def run_in_child(request: StopState, arguments: dict[str, Any]) -> int:
    """What each process of a supervisor does; raises GraphileWorkerError when it cannot."""
    sent = arguments["plan"]
    settings = conf.current().replace(**sent["overrides"]).forbidding(sent["also_forbidden"])
    plan = Plan(settings=settings, **sent)
    terminal.set_up_logging(plan)
    runners = _build(plan)
    # Each of several processes keeps up a file of its own: PATH.0, PATH.1 and so on.
    path = f"{plan.health_file}.{arguments.get('place', 0)}" if plan.health_file else ""
    try:
        with _health_file(path, runners):
            if plan.once:
                return run_until_drained(runners, request)
            return run_until_stopped(runners, request, waits=plan.waits)
    except psycopg.Error as error:
        from django_graphile_worker.worker.process.database_errors import in_a_sentence

        raise GraphileWorkerError(in_a_sentence(error)) from error


def _health_file(path: str, runners: list[Runner]) -> AbstractContextManager[None]:
    if not path:
        return nullcontext()
    from django_graphile_worker.worker.process.health_file import kept_up

    return kept_up(Path(path), runners)


def _build(plan: Plan) -> list[Runner]:
    return build_runners(plan.places(), with_cron=plan.with_cron and not plan.once)


def _portable(plan: Plan) -> dict[str, Any]:
    """The plan as plain values: a child reads the project's settings itself, which may be functions, and adds these."""
    return {name: value for name, value in vars(plan).items() if name != "settings"}
