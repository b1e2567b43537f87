"""A worker whose parts the test steps, instead of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.models import Worker
from django_graphile_worker.registry import Registry, task, tasks
from django_graphile_worker.routing import Place
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.runner import Runner


@contextmanager
def own_tasks(*functions: Callable[..., Any], **options: Any) -> Iterator[Registry]:
    """Register only these functions as tasks while the block runs."""
    with tasks.isolated() as registry:
        registry._tasks.clear()
        for function in functions:
            task(**options)(function)
        yield registry


class SteppedRunner(Runner):
    """A runner that starts no threads but the slots."""

    def prepare(self) -> SteppedRunner:
        self._prepare()
        return self

    def close(self) -> None:
        worker = self.worker
        # It has a thread as soon as there is a schedule that is due at some time.
        worker.scheduler.stop()
        worker.scheduler.join(60)
        worker.pool.stop()
        worker.pool.join(60)
        for service in (
            worker.fetcher,
            worker.releaser,
            worker.heartbeat,
            worker.recovery,
            worker.retention,
            worker.statistics,
        ):
            service.close()
        if worker.limited is not None:
            worker.limited.keeper.close()
        worker.claimer.close()
        worker.executor.event_loop.close(1.0)


def build(registry: Registry, **overrides: Any) -> SteppedRunner:
    settings = conf.current().replace(**({"log_success": False} | overrides))
    return SteppedRunner(Place(using="default", installation=conf.DEFAULT, settings=settings), registry=registry)


class Build:
    """A factory of workers whose parts can be stepped, with the tasks of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.made: list[SteppedRunner] = []

    def __call__(self, **overrides: Any) -> DatabaseWorker:
        """Build a worker with these settings."""
        return self.runner(**overrides).worker

    def runner(self, **overrides: Any) -> SteppedRunner:
        self.made.append(build(self._registry, **overrides).prepare())
        return self.made[-1]


@contextmanager
def stepped_workers(*functions: Callable[..., Any]) -> Iterator[Build]:
    """Return a factory of workers with only these tasks, and close the workers at the end."""
    with own_tasks(*functions) as registry:
        make = Build(registry)
        yield make
        for runner in make.made:
            runner.close()


def run_all(worker: DatabaseWorker, wait_until: Callable[..., None]) -> None:
    """Claim, run and release until no runnable job is left."""
    while True:
        was_quiet = worker.pool.is_idle and worker.releaser.pending_count == 0
        worker.fetcher.step()
        wait_until(lambda: worker.pool.is_idle)
        worker.releaser.step()
        if was_quiet and worker.fetcher.last_claim_was_empty:
            if worker.claimer.scan.has_seen_all:
                return
            worker.claimer.scan.begin_again()


def expect_jobs_of(seconds: float, worker: DatabaseWorker, count: int = 50) -> None:
    """Have the worker expect jobs that take so long, as after so many of them."""
    worker.fetcher._prefetch._duration.add(count, count * seconds)


def beat_of(worker: DatabaseWorker) -> datetime:
    """Return the time of the last beat of a worker, as others see it."""
    moment: datetime = Worker.objects.get(pk=worker.worker_id).last_heartbeat_at
    return moment


def expect_fast_claim(worker: DatabaseWorker) -> None:
    """Have the worker try the fast claim next, also on a busy machine: after a slow fast claim it would rest."""
    worker.fast_path._is_promising = True
    worker.fast_path._rests_until = 0.0


class Gate:
    """A task that records its start, and ends when the test sets `may_end`."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.has_begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self, payload: Any) -> None:
        self.begun.append(payload)
        self.has_begun.release()
        assert self.may_end.wait(120)
