"""Workers from code: the command, a script, a test, or a thread beside a web server."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from django_graphile_worker import __version__, conf
from django_graphile_worker.exceptions import GraphileWorkerError, InvalidTypeError
from django_graphile_worker.routing import queue_aliases
from django_graphile_worker.schedule import collect
from django_graphile_worker.worker.process import run_until_drained, run_until_stopped, shut_down, start_all
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.signal_handling import handled_signals
from django_graphile_worker.worker.stopping import REFUSED, StopRequest, StopState, state_of

if TYPE_CHECKING:
    from typing import Unpack

    from django_graphile_worker.worker.options import OnceOptions, WorkerOptions


def run_worker(
    *, databases: Sequence[str] = (), stop: StopRequest | None = None, **overrides: Unpack[WorkerOptions]
) -> int:
    """Work until SIGTERM or SIGINT, or until ``stop``, a ``StopRequest``, is called from another thread.

    ``overrides`` are settings in lower case (``concurrency=20``). Returns the exit
    code. Off the main thread no signal handlers are installed.
    """
    # Here, as the command, whose start is measured, does without it.
    from django_graphile_worker.worker import embedding

    request = _checked_stop(stop)
    settings, aliases = embedding.settings("run_worker", overrides), queue_aliases(databases)
    runners = build_runners(aliases, settings)
    embedding.ask_django(aliases)
    return supervised(runners, request, once=False)


def run_once(
    *, databases: Sequence[str] = (), stop: StopRequest | None = None, **overrides: Unpack[OnceOptions]
) -> int:
    """Run everything that is runnable now, then return the exit code."""
    from django_graphile_worker.worker import embedding

    request = _checked_stop(stop)
    settings, aliases = embedding.settings("run_once", overrides, with_cron=False), queue_aliases(databases)
    runners = build_runners(aliases, settings, with_cron=False)
    embedding.ask_django(aliases)
    return supervised(runners, request, once=True)


class Worker:
    """A worker beside something else: ``with Worker(concurrency=5): serve()``."""

    def __init__(self, *, databases: Sequence[str] = (), **overrides: Unpack[WorkerOptions]) -> None:
        from django_graphile_worker.worker import embedding

        self._settings = embedding.settings("Worker", overrides)
        self._ask_django = embedding.ask_django
        self._databases = queue_aliases(databases)
        self._lock = threading.Lock()
        # One for each database while it runs: a runner lives once.
        self._runners: list[Runner] = []

    @property
    def is_running(self) -> bool:
        """Was it started, and not stopped since?"""
        return bool(self._runners)

    def start(self) -> None:
        """Start working, in threads of this process; a worker that was stopped may be started again."""
        with self._lock:
            if self._runners:
                raise GraphileWorkerError(
                    "Worker.start(): expected a worker that does not run, got one that was started before. "
                    "Call stop() first, or make another Worker."
                )
            self._ask_django(self._databases)
            self._runners = build_runners(self._databases, self._settings)
            for runner in self._runners:
                runner.on_refused = self._stop_soon
        try:
            start_all(self._runners)
        except BaseException:
            self.stop("it could not start")
            raise

    def stop(self, reason: str = "stop") -> bool:
        """Let running jobs end within the grace period; True when nothing was cut off.

        What was cut off is given back, and may start elsewhere. A coroutine is
        cancelled; but Python cannot stop a thread, so a ``def`` task that does not
        heed ``helpers.abort`` goes on until it returns or this process ends.
        """
        with self._lock:
            runners, self._runners = self._runners, []
        ending = shut_down(runners, reason)
        return ending.was_released and not ending.was_cut_off

    def _stop_soon(self, error: GraphileWorkerError) -> None:
        """On a thread of its own: a part of the worker is calling, which the stop waits for."""
        threading.Thread(target=self.stop, args=[REFUSED], daemon=True).start()

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
        for place, alias in enumerate(queue_aliases(databases))
    ]


def supervised(runners: Sequence[Runner], stop: StopState | None, *, once: bool, waits: bool = False) -> int:
    """Run them with signals handled, where this thread may."""
    request = StopState() if stop is None else stop
    try:
        with handled_signals(request):
            if once:
                return run_until_drained(runners, request)
            return run_until_stopped(runners, request, waits=waits)
    finally:
        if stop is None:
            request.close()


def _checked_stop(stop: Any) -> StopState | None:
    if stop is not None and not isinstance(stop, StopRequest):
        raise InvalidTypeError(
            f"stop: expected a StopRequest, got {stop!r}. Make one with django_graphile_worker.StopRequest(), "
            "and call it to stop the worker."
        )
    return None if stop is None else state_of(stop)
