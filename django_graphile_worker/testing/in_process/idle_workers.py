"""In-process workers between two calls of ``run_jobs()``: to make one takes longer than to claim a job."""

from __future__ import annotations

import threading

from django_graphile_worker.registry import tasks as registered_tasks
from django_graphile_worker.routing import Place
from django_graphile_worker.testing.in_process.in_process_worker import InProcessWorker


class _Thread(threading.local):
    """The idle workers of one thread, by database and installation."""

    def __init__(self) -> None:
        self.workers: dict[tuple[str, str], InProcessWorker] = {}


_thread = _Thread()


def take(place: Place) -> InProcessWorker:
    """Return the idle worker of a place, or a new one if settings, tasks or connections have changed since then."""
    tasks = list(registered_tasks)
    idle = _thread.workers.pop((place.using, place.installation), None)
    return idle if idle is not None and idle.is_for(place, tasks) else InProcessWorker(place, tasks)


def give_back(place: Place, worker: InProcessWorker) -> None:
    """Keep a worker for the next call. One whose call has raised an error is not kept: it may be in any state."""
    _thread.workers[(place.using, place.installation)] = worker
