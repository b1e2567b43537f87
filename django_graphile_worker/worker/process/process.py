"""A worker process: its runners, its signals, its exit code."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import psycopg

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.logs import receivers
from django_graphile_worker.worker.runner import Question, Runner, never
from django_graphile_worker.worker.shutdown import LOOK_INTERVAL
from django_graphile_worker.worker.stop_request import Ending, StopState


def start_all(runners: Sequence[Runner], should_stop: Question = never, *, waits: bool = False) -> None:
    """Start them; of several those whose databases answer, and the others later. shut_down() is its counterpart.

    Where no database answers this is an error, unless ``waits`` says that they are to be waited for.
    """
    _tell_apart(runners)
    if len(runners) == 1:
        _start_alone(runners[0], waits=waits)
        return
    beginnings = {runner.label: runner.begin() for runner in runners}
    for beginning in beginnings.values():
        while not beginning.has_tried.wait(LOOK_INTERVAL) and not should_stop():
            pass
    troubles = {alias: beginning.trouble for alias, beginning in beginnings.items()}
    _raise_what_keeps_all(troubles, waits=waits)


def _start_alone(runner: Runner, *, waits: bool) -> None:
    try:
        runner.start()
    except psycopg.OperationalError as error:
        if not waits or not _may_pass(error):
            raise
        runner.begin()


def _may_pass(error: BaseException | None) -> bool:
    # Here, as a start that goes well needs none of it.
    from django_graphile_worker.worker.process.database_errors import may_pass

    return isinstance(error, psycopg.OperationalError) and may_pass(error)


def _raise_what_keeps_all(troubles: Mapping[str, BaseException | None], *, waits: bool) -> None:
    """A mistake, which time does not mend, or no answer from anywhere."""
    if waits and all(_may_pass(trouble) for trouble in troubles.values() if trouble is not None):
        return
    away = {alias: trouble for alias, trouble in troubles.items() if isinstance(trouble, psycopg.Error)}
    for alias, trouble in troubles.items():
        if trouble is not None and alias not in away:
            raise trouble
    if len(away) == len(troubles):
        raise _unanswered(away)


def _unanswered(troubles: Mapping[str, psycopg.Error]) -> GraphileWorkerError:
    from django_graphile_worker.worker.process.database_errors import in_a_sentence

    error = GraphileWorkerError(" ".join(in_a_sentence(trouble, alias) for alias, trouble in troubles.items()))
    error.__cause__ = next(iter(troubles.values()))
    return error


def _tell_apart(runners: Sequence[Runner]) -> None:
    receivers.served_databases.add(runner.label for runner in runners)


def run_until_stopped(runners: Sequence[Runner], request: StopState, *, waits: bool = False) -> int:
    """Work until asked to stop; the exit code."""
    for runner in runners:
        runner.on_refused = request.refuse
    try:
        start_all(runners, lambda: request.is_made, waits=waits)
        request.on_started()
        request.wait()
    finally:
        ending = _end(runners, request)
    return exit_code(request, ending.was_released)


def run_until_drained(runners: Sequence[Runner], request: StopState) -> int:
    """Run what is runnable, then stop; the exit code."""
    away: dict[str, psycopg.Error] = {}
    try:
        _tell_apart(runners)
        for runner in runners:
            try:
                runner.drain(lambda: request.is_made)
            except psycopg.Error as error:
                if len(runners) == 1:
                    raise
                away[runner.label] = error
    finally:
        ending = _end(runners, request)
    if away:
        raise _unanswered(away)
    return exit_code(request, ending.was_released)


def _end(runners: Sequence[Runner], request: StopState) -> Ending:
    request.ending = shut_down(runners, request.reason, is_forced=lambda: request.is_urgent)
    return request.ending


def exit_code(request: StopState, was_clean: bool) -> int:
    """0 when everything ended well; 128 + the signal, as shells say it, when it was cut short."""
    if request.refusal is not None and request.signal_number is None:
        return request.refusal.exit_code
    if was_clean and not request.is_urgent:
        return 0
    return 128 + request.signal_number if request.signal_number else 1


def shut_down(runners: Sequence[Runner], reason: str, *, is_forced: Question = never) -> Ending:
    """All at once: the grace period is one, however many databases there are."""
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
    receivers.served_databases.remove(runner.label for runner in runners)
    have_all_ended = len(endings) == len(runners)
    return Ending(
        was_released=have_all_ended and all(ending.was_released for ending in endings),
        was_cut_off=not have_all_ended or any(ending.was_cut_off for ending in endings),
    )
