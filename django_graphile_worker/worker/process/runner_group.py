"""The runners of one process: built, started and shut down together. Each serves one database of one installation."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

import psycopg

from django_graphile_worker import __version__, conf
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.logs.lines import served_databases
from django_graphile_worker.project_crontab import collect
from django_graphile_worker.registry import tasks as registered_tasks
from django_graphile_worker.routing import Place
from django_graphile_worker.worker.runner import Question, Runner, never
from django_graphile_worker.worker.shutdown import LOOK_INTERVAL
from django_graphile_worker.worker.stop_request import Ending


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
        while not beginning.has_tried.wait(LOOK_INTERVAL) and not should_stop():
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


def _may_pass(error: BaseException | None) -> bool:
    # Late import: a start that succeeds does not need it.
    from django_graphile_worker.worker.process.database_errors import may_pass

    return isinstance(error, psycopg.OperationalError) and may_pass(error)


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
    # Late import: a start that succeeds does not need it.
    from django_graphile_worker.worker.process.database_errors import in_a_sentence

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
