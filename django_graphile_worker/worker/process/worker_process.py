"""The life of a worker process: its runners are built, run until stopped or drained, and shut down together.

Each runner serves one database of one installation. A process of the worker's own also ends in time, when something of
a job still runs in it. Python waits at its end for every thread of every ``ThreadPoolExecutor``, which is also where
``asyncio.to_thread()`` runs: no daemon flag avoids it. A job that was returned would go on there, beside its second
run, and the process would outlive its stop.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import psycopg
from psycopg import errors

from django_graphile_worker import __version__, conf
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.logs.lines import served_databases
from django_graphile_worker.recurring import collect
from django_graphile_worker.registry import tasks as registered_tasks
from django_graphile_worker.routing import Place
from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.runner import Question, Runner, never
from django_graphile_worker.worker.shutdown import CHECK_INTERVAL
from django_graphile_worker.worker.stop_request import RETIRED, Ending, WorkerStop

# Seconds that the exit handlers of other packages (which send reports, or save coverage) may take.
EXIT_HANDLERS_TIMEOUT = 2.0
# Errors of libpq that do not pass with time. They have no SQLSTATE; a translated message is not recognised.
_LASTING_ERRORS = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied",
    "invalid connection option",
)
# How many objects more than before make the collector look for garbage: by default until Python 3.12, and since 3.13.
FORMER_GC_DEFAULT = 700
GC_DEFAULT = 2000


def collect_less_often() -> None:
    """Have the collector run as often as newer versions of Python do, unless the project has decided how often.

    A claim makes a thousand objects and a release ends them, so that the former default finds as many objects more and
    no garbage, several times for each claim. That takes a twentieth of the CPU time that a worker needs for a job. Only
    ``runworker`` calls it: a reusable app must not change the collector of a web process.
    """
    if gc.get_threshold()[0] == FORMER_GC_DEFAULT:
        gc.set_threshold(GC_DEFAULT)


def build_runners(places: Iterable[Place], *, with_cron: bool = True) -> list[Runner]:
    """Return one runner for each place; without cron, they fire neither a crontab nor schedules."""
    if not with_cron:
        return [Runner(place, cron_items=None, version=__version__) for place in places]
    runners: list[Runner] = []
    seen: set[str] = set()
    for place in places:
        # The items of an installation belong to the first of its databases: otherwise each database would fire them.
        is_first = place.installation not in seen
        seen.add(place.installation)
        with_tasks = is_first and place.installation == conf.DEFAULT
        items = collect(place.settings, with_tasks=with_tasks) if is_first else ()
        every = registered_tasks.every() if with_tasks else {}
        runners.append(Runner(place, cron_items=items, every=every, version=__version__))
    return runners


def run_with_signals(runners: Sequence[Runner], stop: WorkerStop | None, *, once: bool, waits: bool = False) -> int:
    """Run until drained (``once``) or until stopped, and return the exit code.

    On the main thread, stop signals become stop requests; other threads cannot handle signals.
    """
    request = WorkerStop() if stop is None else stop
    try:
        with handled_signals(request):
            if once:
                return run_until_drained(runners, request)
            return run_until_stopped(runners, request, waits=waits)
    finally:
        if stop is None:
            request.close()


def run_until_stopped(runners: Sequence[Runner], request: WorkerStop, *, waits: bool = False) -> int:
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


def run_until_drained(runners: Sequence[Runner], request: WorkerStop) -> int:
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


def _retire(runners: Sequence[Runner], request: WorkerStop) -> None:
    """Run no more jobs than have begun, until they have ended or a stop is requested: another process takes over."""
    on_retiring, request.on_retiring = request.on_retiring, None
    if on_retiring is not None:
        on_retiring()
    for runner in runners:
        runner.retire(lambda: request.is_made)
    request.must_retire = False
    while not request.wait(CHECK_INTERVAL) and not all(runner.has_retired for runner in runners):
        # Another thread may have asked for the same at the same moment.
        request.must_retire = False
    if not request.is_made:
        request(RETIRED)


def _end(runners: Sequence[Runner], request: WorkerStop) -> Ending:
    request.on_stopping()
    request.ending = shut_down(runners, request.reason, is_forced=lambda: request.is_urgent)
    return request.ending


def exit_code(request: WorkerStop, was_clean: bool) -> int:
    """Return 0 when every job was released; 128 + the number of the signal, as shells do, when a stop was forced."""
    if request.refusal is not None and request.signal_number is None:
        return request.refusal.exit_code
    if was_clean and not request.is_urgent:
        return 0
    return 128 + request.signal_number if request.signal_number else 1


# The runners together.


def start_all(runners: Sequence[Runner], should_stop: Question = never, *, waits: bool = False) -> None:
    """Start the runners whose databases answer, and the others as soon as theirs do. Its counterpart is shut_down().

    Raises an error if no database answers, unless ``waits`` is True and the errors may pass. The error of a single
    runner is raised unchanged.
    """
    name_databases(runners)
    if len(runners) == 1:
        _start_alone(runners[0], waits=waits)
        return
    beginnings = {runner.label: runner.begin() for runner in runners}
    for beginning in beginnings.values():
        while not beginning.has_tried.wait(CHECK_INTERVAL) and not should_stop():
            pass
    troubles = {alias: beginning.trouble for alias, beginning in beginnings.items()}
    _raise_what_keeps_all(troubles, waits=waits)


def name_databases(runners: Sequence[Runner]) -> None:
    """Have each line of the log name its database, if this process serves several."""
    served_databases.add(runner.label for runner in runners)


def _start_alone(runner: Runner, *, waits: bool) -> None:
    try:
        runner.start()
    except psycopg.OperationalError as error:
        if not waits or not _may_pass(error):
            raise
        runner.begin()


def _raise_what_keeps_all(troubles: Mapping[str, BaseException | None], *, waits: bool) -> None:
    """Raise an error that does not come from the database, or one error for all databases if none answers.

    With ``waits``, raise nothing if all errors may pass.
    """
    if waits and all(_may_pass(trouble) for trouble in troubles.values() if trouble is not None):
        return
    away = {alias: trouble for alias, trouble in troubles.items() if isinstance(trouble, psycopg.Error)}
    for alias, trouble in troubles.items():
        if trouble is not None and alias not in away:
            raise trouble
    if len(away) == len(troubles):
        raise unanswered(away)


def unanswered(troubles: Mapping[str, psycopg.Error]) -> GraphileWorkerError:
    """Return one error for all databases that do not answer, by their aliases."""
    error = GraphileWorkerError(" ".join(in_a_sentence(trouble, alias) for alias, trouble in troubles.items()))
    error.__cause__ = next(iter(troubles.values()))
    return error


def shut_down(runners: Sequence[Runner], reason: str, *, is_forced: Question = never) -> Ending:
    """Shut the runners down side by side: all share one grace period, however many databases there are."""
    endings: list[Ending] = []
    threads = [
        threading.Thread(
            target=lambda runner=runner: endings.append(runner.end(reason, is_forced=is_forced)), daemon=True
        )
        for runner in runners
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served_databases.remove(runner.label for runner in runners)
    have_all_ended = len(endings) == len(runners)
    return Ending(
        was_released=have_all_ended and all(ending.was_released for ending in endings),
        was_cut_off=not have_all_ended or any(ending.was_cut_off for ending in endings),
    )


# Errors of the database as sentences, for the user that starts a worker.


def in_a_sentence(error: psycopg.Error, alias: str = "") -> str:
    """Return a sentence with the error, and with the alias if there are several databases."""
    text = " ".join(str(error).split())
    name = f" {alias!r}" if alias else ""
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return f"The database{name} is read-only, a standby perhaps: {text}"
    if isinstance(error, psycopg.OperationalError):
        return f"Cannot reach the database{name}: {text}"
    return f"The database{name} refused a statement of the worker: {text}"


def _may_pass(error: BaseException | None) -> bool:
    """Return True for an error that may pass with time, as of a server that starts; not for a wrong password."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    code = error.sqlstate or ""
    text = str(error)
    return not code.startswith(("28", "3D")) and not any(words in text for words in _LASTING_ERRORS)


# The end of a process of the worker's own.


def end_process(request: WorkerStop, code: int) -> None:
    """End this process at once if a job still runs in it; otherwise make sure that it ends in time.

    Jobs that have ended may have left threads behind, for which Python would wait.
    """
    if request.leaves_jobs_behind:
        leave(code)
    if request.is_made:
        end_in_time(code)


def leave(code: int) -> NoReturn:
    """End this process: write the log, call exit handlers, wait for no thread."""
    end_in_time(code)
    try:
        _flush()
        # On the main thread, where Python calls them: some handlers may not be called on another.
        atexit._run_exitfuncs()
        _flush()
    finally:
        os._exit(code)


def end_in_time(code: int) -> None:
    """Let this process end in its own way, but kill it when that takes longer than the timeout."""
    threading.Thread(target=_end_later, args=(code,), name="graphile-worker-end", daemon=True).start()


def _end_later(code: int) -> None:
    # An exit handler that waits for a job, or for a lock that a job holds, would wait for ever.
    threading.Event().wait(EXIT_HANDLERS_TIMEOUT)
    os._exit(code)


def _flush() -> None:
    for out in (*_log_handlers(), sys.stdout, sys.stderr):
        # A stream that is closed, broken, or None has nothing to write.
        with contextlib.suppress(Exception):
            out.flush()


def _log_handlers() -> Iterator[logging.Handler]:
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers
