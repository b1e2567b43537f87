"""Workers from code: the command, a script, a test, or a thread beside a web server."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from django_graphile_worker import __version__, conf
from django_graphile_worker.routing import queue_alias
from django_graphile_worker.schedule import collect
from django_graphile_worker.worker.process import (
    StopRequest,
    handled_signals,
    run_until_drained,
    run_until_stopped,
)
from django_graphile_worker.worker.runner import Runner


def run_worker(*, databases: Sequence[str] = (), stop: StopRequest | None = None, **overrides: Any) -> int:
    """Work until SIGTERM or SIGINT, or until ``stop()`` is called from another thread.

    ``overrides`` are settings in lower case (``concurrency=20``). Returns the exit
    code. Off the main thread no signal handlers are installed.
    """
    runners = build_runners(databases, conf.current().replace(**overrides))
    return supervised(runners, stop, once=False)


def run_once(*, databases: Sequence[str] = (), stop: StopRequest | None = None, **overrides: Any) -> int:
    """Run everything that is runnable now, then return the exit code."""
    settings = conf.current().replace(**overrides)
    return supervised(build_runners(databases, settings, with_cron=False), stop, once=True)


class Worker:
    """A worker beside something else: ``with Worker(concurrency=5): serve()``."""

    def __init__(self, *, databases: Sequence[str] = (), **overrides: Any) -> None:
        self.runners = build_runners(databases, conf.current().replace(**overrides))

    @classmethod
    def of(cls, runners: Sequence[Runner]) -> Worker:
        """A worker made of runners that are built already."""
        worker = cls.__new__(cls)
        worker.runners = list(runners)
        return worker

    def start(self) -> None:
        for runner in self.runners:
            runner.start()

    def stop(self, reason: str = "stop") -> bool:
        """Let running jobs end within the grace period; True when nothing was cut off."""
        results = [runner.shutdown(reason) for runner in self.runners]
        return all(results)

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def build_runners(databases: Sequence[str], settings: conf.Settings, *, with_cron: bool = True) -> list[Runner]:
    """One runner per database; recurring tasks belong to the first, or each would fire once per database."""
    items = collect(settings) if with_cron else ()
    return [
        Runner(settings, alias, cron_items=() if place else items, version=__version__)
        for place, alias in enumerate(databases or (queue_alias(),))
    ]


def supervised(runners: Sequence[Runner], stop: StopRequest | None, *, once: bool) -> int:
    """Run them with signals handled, where this thread may."""
    request = stop or StopRequest()
    with handled_signals(request):
        return run_until_drained(runners, request) if once else run_until_stopped(runners, request)
