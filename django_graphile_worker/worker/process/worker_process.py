"""The life of a worker process: its runners run until a signal stops them, or until no runnable job is left."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from django_graphile_worker.worker.process.runner_group import name_databases, shut_down, start_all, unanswered
from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.shutdown import LOOK_INTERVAL
from django_graphile_worker.worker.stop_request import RETIRED, Ending, StopState


def run_with_signals(runners: Sequence[Runner], stop: StopState | None, *, once: bool, waits: bool = False) -> int:
    """Run until drained (``once``) or until stopped, and return the exit code.

    On the main thread, stop signals become stop requests; other threads cannot handle signals.
    """
    request = StopState() if stop is None else stop
    try:
        with handled_signals(request):
            if once:
                return run_until_drained(runners, request)
            return run_until_stopped(runners, request, waits=waits)
    finally:
        if stop is None:
            request.close()


def run_until_stopped(runners: Sequence[Runner], request: StopState, *, waits: bool = False) -> int:
    """Run jobs until a stop is requested; return the exit code."""
    for runner in runners:
        runner.worker.on_refused = request.refuse
        runner.worker.on_thread_left = request.note_left_thread
    try:
        start_all(runners, lambda: request.is_made, waits=waits)
        request.on_started()
        if not request.wait():
            _retire(runners, request)
    finally:
        ending = _end(runners, request)
    return exit_code(request, ending.was_released)


def run_until_drained(runners: Sequence[Runner], request: StopState) -> int:
    """Run the jobs that are runnable, then stop; return the exit code."""
    away: dict[str, psycopg.Error] = {}
    try:
        name_databases(runners)
        for runner in runners:
            runner.worker.on_thread_left = request.note_left_thread
            try:
                runner.drain(lambda: request.is_made)
            except psycopg.Error as error:
                if len(runners) == 1:
                    raise
                away[runner.label] = error
    finally:
        ending = _end(runners, request)
    if away:
        raise unanswered(away)
    return exit_code(request, ending.was_released)


def _retire(runners: Sequence[Runner], request: StopState) -> None:
    """Run no more jobs than have begun, until they have ended or a stop is requested: another process takes over."""
    request.must_retire = False
    if request.on_retiring is not None:
        request.on_retiring()
    for runner in runners:
        runner.retire(lambda: request.is_made)
    while not request.wait(LOOK_INTERVAL) and not all(runner.has_retired for runner in runners):
        pass
    if not request.is_made:
        request(RETIRED)


def _end(runners: Sequence[Runner], request: StopState) -> Ending:
    request.ending = shut_down(runners, request.reason, is_forced=lambda: request.is_urgent)
    return request.ending


def exit_code(request: StopState, was_clean: bool) -> int:
    """Return 0 when every job was released; 128 + the number of the signal, as shells do, when a stop was forced."""
    if request.refusal is not None and request.signal_number is None:
        return request.refusal.exit_code
    if was_clean and not request.is_urgent:
        return 0
    return 128 + request.signal_number if request.signal_number else 1
