"""Workers from code: the command, a script, a test, or a thread beside a web server."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from django_graphile_worker import __version__, conf
from django_graphile_worker.exceptions import GraphileWorkerError, InvalidTypeError
from django_graphile_worker.routing import Place
from django_graphile_worker.schedule import collect
from django_graphile_worker.worker.process.process import run_until_drained, run_until_stopped, shut_down, start_all
from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.stop_request import REFUSED, StopRequest, StopState, state_of

if TYPE_CHECKING:
    from typing import Unpack

    from django_graphile_worker.crontab import CronItem
    from django_graphile_worker.worker.worker_options import OnceOptions, WorkerOptions


def run_worker(
    *,
    databases: Sequence[str] = (),
    installations: Sequence[str] = (),
    stop: StopRequest | None = None,
    **overrides: Unpack[WorkerOptions],
) -> int:
    """Work until SIGTERM or SIGINT, or until ``stop``, a ``StopRequest``, is called from another thread.

    ``databases`` and ``installations`` are aliases of what to serve, if that is not the installation ``default``;
    ``overrides`` are settings in lower case (``concurrency=20``). Returns the exit
    code. Off the main thread no signal handlers are installed.
    """
    # Here, as the command, whose start is measured, does without it.
    from django_graphile_worker.worker.process import embedded

    request = _checked_stop(stop)
    places = embedded.places("run_worker", databases, installations, overrides)
    runners = build_runners(places)
    embedded.ask_django([place.using for place in places])
    return supervised(runners, request, once=False)


def run_once(
    *,
    databases: Sequence[str] = (),
    installations: Sequence[str] = (),
    stop: StopRequest | None = None,
    **overrides: Unpack[OnceOptions],
) -> int:
    """Run everything that is runnable now, then return the exit code."""
    from django_graphile_worker.worker.process import embedded

    request = _checked_stop(stop)
    places = embedded.places("run_once", databases, installations, overrides, with_cron=False)
    runners = build_runners(places, with_cron=False)
    embedded.ask_django([place.using for place in places])
    return supervised(runners, request, once=True)


class Worker:
    """A worker beside something else: ``with Worker(concurrency=5): serve()``."""

    def __init__(
        self,
        *,
        databases: Sequence[str] = (),
        installations: Sequence[str] = (),
        **overrides: Unpack[WorkerOptions],
    ) -> None:
        from django_graphile_worker.worker.process import embedded

        self._ask_django = embedded.ask_django
        self._places = embedded.places("Worker", databases, installations, overrides)
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
            self._ask_django([place.using for place in self._places])
            self._runners = build_runners(self._places)
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


def build_runners(places: Iterable[Place], *, with_cron: bool = True) -> list[Runner]:
    """One runner for each place."""
    places = list(places)
    schedules = _schedules(places) if with_cron else ((),) * len(places)
    return [
        Runner(place, cron_items=items, version=__version__) for place, items in zip(places, schedules, strict=True)
    ]


def _schedules(places: Iterable[Place]) -> Iterator[tuple[CronItem, ...]]:
    """The recurring tasks of an installation belong to the first of its databases, or each would fire them."""
    seen: set[str] = set()
    for place in places:
        is_first = place.installation not in seen
        seen.add(place.installation)
        yield collect(place.settings, with_tasks=place.installation == conf.DEFAULT) if is_first else ()


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
