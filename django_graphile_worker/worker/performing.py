"""How each task is performed: worked out once per task, so that running a job is one call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django_graphile_worker import conf
from django_graphile_worker.exceptions import InvalidTypeError, UnknownTaskError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.signatures import is_generator
from django_graphile_worker.worker.binding import Binding, bind
from django_graphile_worker.worker.context import Abort, Helpers
from django_graphile_worker.worker.eventloop import EventLoop
from django_graphile_worker.worker.run import Run

if TYPE_CHECKING:
    from django_graphile_worker.worker.middleware import Handler

logger = logging.getLogger("django_graphile_worker.worker")

Perform = Callable[[Run], Any]

_current_run: ContextVar[Run] = ContextVar("graphile_worker_run")


class Performer:
    """Makes, for each task, the function that performs its jobs."""

    def __init__(self, *, settings: conf.Settings, using: str, event_loop: EventLoop, abort: Abort) -> None:
        self._settings = settings
        self._using = using
        self._event_loop = event_loop
        self._abort = abort
        self._performs: dict[Task[Any, Any] | None, Perform] = {None: _unknown}
        self._bindings: dict[Task[Any, Any] | None, Binding] = {}
        self._chains: dict[bool, Handler] | None = None

    def load_middleware(self) -> None:
        """Build one chain for each kind of task; raises ConfigurationError."""
        if not self._settings.middleware:
            return
        # Here, as below: a start need not wait for what most workers or jobs do without.
        from django_graphile_worker.worker import middleware

        factories = middleware.load(self._settings.middleware)
        kinds = middleware.Handler(self._call, is_async=False), middleware.Handler(self._acall, is_async=True)
        self._chains = {kind.is_async: middleware.build(factories, kind, self._event_loop) for kind in kinds}

    def perform(self, run: Run) -> Any:
        """Perform the job; raises whatever went wrong."""
        return (self._performs.get(run.task) or self._prepare(run.task))(run)

    def _prepare(self, task: Task[Any, Any] | None) -> Perform:
        assert task is not None
        binding = self._bindings[task] = bind(task.function)
        perform = self._choose(task, binding)
        self._performs[task] = self._atomically(perform) if task.atomic else perform
        return self._performs[task]

    def _choose(self, task: Task[Any, Any], binding: Binding) -> Perform:
        if self._chains is not None:
            return self._through_middleware(self._chains[task.is_async])
        if task.is_async:
            return self._on_the_loop(binding)
        return self._plainly(binding.function) if binding.is_plain else self._bound(binding)

    def _plainly(self, function: Callable[[Any], Any]) -> Perform:
        def perform(run: Run) -> Any:
            result = function(run.decode())
            if result is not None:
                self._settle(run, result)

        return perform

    def _bound(self, binding: Binding) -> Perform:
        def perform(run: Run) -> Any:
            self._settle(run, binding.call(run.decode(), self._helpers(run)))

        return perform

    def _on_the_loop(self, binding: Binding) -> Perform:
        def perform(run: Run) -> Any:
            payload, helpers = run.decode(), self._helpers(run)
            self._settle(run, self._event_loop.run(lambda: _awaited(binding.call(payload, helpers))))

        return perform

    def _through_middleware(self, chain: Handler) -> Perform:
        def perform(run: Run) -> Any:
            run.decode()
            _current_run.set(run)
            job = run.job
            if chain.is_async:
                self._settle(run, self._event_loop.run(lambda: _awaited(chain.call(job))))
            else:
                self._settle(run, chain.call(job))

        return perform

    def _atomically(self, perform: Perform) -> Perform:
        from django_graphile_worker.worker.atomic import run_atomically

        def perform_atomically(run: Run) -> Any:
            return run_atomically(run, perform, using=self._using, schema=self._settings.schema)

        return perform_atomically

    # The innermost handlers, inside all middleware.

    def _call(self, job: Job) -> Any:
        run = _current_run.get()
        if job.payload is not run.payload:
            run.rewrite(job.payload)
        return self._bindings[run.task].call(job.payload, self._helpers(run, job))

    async def _acall(self, job: Job) -> Any:
        return await _awaited(self._call(job))

    def _helpers(self, run: Run, job: Job | None = None) -> Helpers:
        return Helpers(lambda: job or run.job, using=self._using, abort=self._abort)

    # Results matter only for array payloads.

    def _settle(self, run: Run, result: Any) -> None:
        if inspect.isawaitable(result) or _holds_awaitables(result):
            awaitable = result
            result = self._event_loop.run(lambda: _awaited(awaitable))
        _refuse_unrun(run, result)
        if isinstance(result, list | tuple) and run.item_count is not None:
            _settle_batch(run, result)


async def _awaited(result: Any) -> Any:
    # A task may return what it should have awaited: a decorator that hides `async def`, a forgotten word.
    while inspect.isawaitable(result):
        result = await result
    if not _holds_awaitables(result):
        return result
    from django_graphile_worker.worker import batch

    return await batch.gathered(result)


def _holds_awaitables(results: Any) -> bool:
    return isinstance(results, list | tuple) and any(map(inspect.isawaitable, results))


def _refuse_unrun(run: Run, result: Any) -> None:
    """A generator is work that nobody has done; the job must not be deleted for it."""
    if is_generator(result) or (isinstance(result, list | tuple) and any(map(is_generator, result))):
        raise InvalidTypeError(
            f"expected {run.identifier} to return when it is done, got a generator: nothing of its body has run. "
            "Loop over it inside the task."
        )


def _settle_batch(run: Run, results: list[Any] | tuple[Any, ...]) -> None:
    if len(results) != run.item_count:
        logger.warning(
            "%s #%s returned %s results for %s items: the job counts as done.",
            run.identifier,
            run.claim.id,
            len(results),
            run.item_count,
        )
        return
    failures = {index: result for index, result in enumerate(results) if isinstance(result, BaseException)}
    if failures:
        from django_graphile_worker.worker.batch import BatchFailure

        raise BatchFailure(failures, len(results))


def _unknown(run: Run) -> Any:
    raise UnknownTaskError(
        f"expected a task that this worker knows, got the one with id {run.claim.task_id}: "
        "it is no longer registered. Restart the worker, or bring the task back."
    )
