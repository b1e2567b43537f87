"""The start of ``runworker``: one function that decides how to run a plan.

A plan runs as a process that watches for changes of the code (``--reload``), as a worker in this process, once or until
it is stopped, or as several processes under a supervisor.

This module imports little, so that the worker's first connection opens while Python loads the rest of the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.gc_pause import collect_less_often, collector_paused
from django_graphile_worker.worker.process.plan import Plan, is_watched
from django_graphile_worker.worker.stop_request import StopState

Say = Callable[[str], None]


def start(plan: Plan, *, say: Say, complain: Say, owns_process: bool) -> int:
    """Run the worker as the plan describes, and return the exit code.

    ``say`` shows a text to the user, ``complain`` shows an error. Raises GraphileWorkerError when the worker cannot
    run. With ``owns_process``, a process in which a job still runs ends within this function; without it, as under
    call_command(), the function always returns.
    """
    if owns_process:
        collect_less_often()
    run: Callable[[Any], int] = partial(_run, plan, say)
    if plan.reload:
        # Late import: Django's reloader and subprocess are for development.
        from django_graphile_worker.worker.process import reloader

        if not is_watched():
            return reloader.keep_running(say)
        run = partial(reloader.run_watched, run)
    request = reloader.WatchedRequest() if plan.reload else StopState()
    try:
        code = run(request)
    except GraphileWorkerError as error:
        if not (owns_process and request.is_made and request.leaves_jobs_behind):
            raise
        complain(str(error))
        code = error.exit_code
    finally:
        if not plan.reload:
            # Under --reload two threads write to the request until the process ends, which is soon.
            request.close()
    if owns_process and request.is_made:
        # Late import: only needed at the end of the worker.
        from django_graphile_worker.worker.process.exit import end_process

        end_process(request, code)
    return code


def _run(plan: Plan, say: Say, request: StopState) -> int:
    """Run one process or several; return the exit code."""
    places = plan.places()
    with collector_paused():
        # Late import: if psycopg 3 is missing, the system checks, which run before this, report it.
        from django_graphile_worker.worker.process import run_plan

    runners = run_plan.prepare(plan, say)
    if plan.needs_supervisor(places):
        return run_plan.run_children(plan, request)
    return run_plan.run_alone(plan, runners, request)
