"""A runner whose parts are stepped by the test instead of by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.registry import Registry, task, tasks
from django_graphile_worker.worker.runner import Runner


@contextmanager
def own_tasks(*functions: Callable[..., Any], **options: Any) -> Iterator[Registry]:
    """Only these functions as tasks, as long as the block lasts."""
    with tasks.isolated() as registry:
        registry._tasks.clear()
        for function in functions:
            task(**options)(function)
        yield registry


class SteppedRunner(Runner):
    """Nothing runs by itself but the slots."""

    def prepare(self) -> SteppedRunner:
        self._prepare()
        return self

    def close(self) -> None:
        self.slots.stop()
        self.slots.join(60)
        for service in (self.fetcher, self.releaser, self.heartbeat, self.recovery, self.statistics):
            service.close()
        self.claimer.close()
        self.executor.close(1.0)


Build = Callable[..., SteppedRunner]


def build(registry: Registry, **overrides: Any) -> SteppedRunner:
    settings = conf.current().replace(**({"log_success": False} | overrides))
    return SteppedRunner(settings, "default", registry=registry)


@contextmanager
def stepped_workers(*functions: Callable[..., Any]) -> Iterator[Build]:
    """A factory of runners that know only these tasks, ready to be stepped, and closed at the end."""
    made: list[SteppedRunner] = []
    with own_tasks(*functions) as registry:

        def make(**overrides: Any) -> SteppedRunner:
            made.append(build(registry, **overrides).prepare())
            return made[-1]

        yield make
        for each in made:
            each.close()


def run_all(worker: SteppedRunner, wait_until: Callable[..., None]) -> None:
    """Claim and release until nothing is left to do."""
    while True:
        was_quiet = worker.slots.is_idle and worker.releaser.in_hand == 0
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        worker.releaser.step()
        if was_quiet and worker.fetcher.last_claim_was_empty:
            return


class Gate:
    """A task that tells when it begins and waits until it is let through."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.has_begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self, payload: Any) -> None:
        self.begun.append(payload)
        self.has_begun.release()
        assert self.may_end.wait(120)
