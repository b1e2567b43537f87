"""Starts what a command line asks for: one process or several, once or for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from django_graphile_worker import conf
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.management import terminal
from django_graphile_worker.management.plan import Plan
from django_graphile_worker.worker.library import build_runners, supervised
from django_graphile_worker.worker.process import run_until_drained, run_until_stopped
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.signal_handling import handled_signals
from django_graphile_worker.worker.stopping import StopState

Say = Callable[[str], None]


def run(plan: Plan, *, say: Say, stop: StopState) -> int:
    """Run a worker, or several under a supervisor; the exit code."""
    runners = _build(plan)
    terminal.set_up_logging(plan)
    if plan.verbosity:
        say(terminal.banner(runners, plan))
    if plan.settings.processes == 1:
        return supervised(runners, stop, once=plan.once)
    return _supervise(plan, stop)


def _supervise(plan: Plan, request: StopState) -> int:
    # Here, as it brings multiprocessing along: 5 ms that one process alone need not spend.
    from django_graphile_worker.worker.supervisor import Supervisor

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
    try:
        return run_until_drained(runners, request) if plan.once else run_until_stopped(runners, request)
    except psycopg.Error as error:
        from django_graphile_worker.worker.trouble import in_a_sentence

        raise GraphileWorkerError(in_a_sentence(error)) from error


def _build(plan: Plan) -> list[Runner]:
    return build_runners(plan.places(), with_cron=plan.with_cron and not plan.once)


def _portable(plan: Plan) -> dict[str, Any]:
    """The plan as plain values: a child reads the project's settings itself, which may be functions, and adds these."""
    return {name: value for name, value in vars(plan).items() if name != "settings"}
