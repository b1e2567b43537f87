"""How each task is performed: worked out once per task, so that running a job is one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django_graphile_worker import conf
from django_graphile_worker.exceptions import GraphileWorkerError, UnknownTaskError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.execution.binding import Binding, bind
from django_graphile_worker.worker.execution.event_loop import EventLoop
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.execution.task_helpers import Aborts, Helpers

if TYPE_CHECKING:
    from django_graphile_worker.worker.execution.middleware import Handler

Perform = Callable[[JobRun], Any]

# Results that can hold neither an awaitable nor an exception; most jobs have one of these.
_SAYS_NOTHING = frozenset({type(None), bool, int, float, str, bytes, dict})

_current_run: ContextVar[JobRun] = ContextVar("graphile_worker_run")


class TaskInvoker:
    """Makes, for each task, the function that performs its jobs."""

    def __init__(
        self, *, settings: conf.Settings, using: str, installation: str, event_loop: EventLoop, aborts: Aborts
    ) -> None:
        self._settings = settings
        self._using = using
        self._installation = installation
        self._event_loop = event_loop
        self._aborts = aborts
        self._performs: dict[Task[Any, Any] | None, Perform] = {None: _unknown}
        self._bindings: dict[Task[Any, Any] | None, Binding] = {}
        self._chains: dict[bool, Handler] | None = None
        self._judge: Callable[[JobRun, Any], None] | None = None

    def load_middleware(self) -> None:
        """Build one chain for each kind of task; raises ConfigurationError."""
        if not self._settings.middleware:
            return
        # Here, as below: a start need not wait for what most workers or jobs do without.
        from django_graphile_worker.worker.execution import middleware

        factories = middleware.load(self._settings.middleware)
        kinds = middleware.Handler(self._call, is_async=False), middleware.Handler(self._acall, is_async=True)
        self._chains = {kind.is_async: middleware.build(factories, kind, self._event_loop) for kind in kinds}

    def perform(self, run: JobRun) -> Any:
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
        def perform(run: JobRun) -> Any:
            result = function(run.decode())
            return None if result is None else self._settled(run, result)

        return perform

    def _bound(self, binding: Binding) -> Perform:
        def perform(run: JobRun) -> Any:
            return self._settled(run, binding.call(run.decode(), self._helpers(run)))

        return perform

    def _on_the_loop(self, binding: Binding) -> Perform:
        def perform(run: JobRun) -> Any:
            payload, helpers = run.decode(), self._helpers(run)
            return self._settled(run, self._event_loop.run(lambda: _awaited(binding.call(payload, helpers))))

        return perform

    def _through_middleware(self, chain: Handler) -> Perform:
        def perform(run: JobRun) -> Any:
            run.decode()
            _current_run.set(run)
            job = run.job
            if chain.is_async:
                result = self._event_loop.run(lambda: _awaited(chain.call(job)))
            else:
                result = self._finished(chain.call(job))
            # The task's own result was judged inside the chain; this is what the outermost middleware returned.
            if type(result) not in _SAYS_NOTHING:
                from django_graphile_worker.worker.execution import results

                results.raise_failures(run, result)
            return result

        return perform

    def _atomically(self, perform: Perform) -> Perform:
        from django_graphile_worker.worker.execution.atomic import run_atomically

        def perform_atomically(run: JobRun) -> Any:
            return run_atomically(run, perform_here, using=self._using, schema=self._settings.schema)

        def perform_here(run: JobRun) -> Any:
            # A forked process shares the connection: it must end before it completes the job, or rolls it back.
            born_in, error = fork_guard.generation, None
            try:
                return perform(run)
            except BaseException as raised:
                error = raised
                raise
            finally:
                fork_guard.end_child(born_in, error)
                error = None

        return perform_atomically

    # The innermost handlers, inside all middleware, which may look at results, or drop them: so what is still to be
    # awaited is awaited here, and the failures that a result holds are raised, as if by the task itself.

    def _call(self, job: Job) -> Any:
        return _judged(self._finished(self._call_task(job)))

    async def _acall(self, job: Job) -> Any:
        return _judged(await _awaited(self._call_task(job)))

    def _call_task(self, job: Job) -> Any:
        run = _run_in_hand()
        if job.payload is not run.payload:
            run.rewrite(job.payload)
        return self._bindings[run.task].call(job.payload, self._helpers(run, job))

    def _helpers(self, run: JobRun, job: Job | None = None) -> Helpers:
        return Helpers(
            lambda: job or run.job,
            using=self._using,
            installation=self._installation,
            build_abort=lambda: self._aborts.of(run),
        )

    def _settled(self, run: JobRun, result: Any) -> Any:
        """Await what a task returned instead of awaiting it, raise what its results say went wrong; the result."""
        if type(result) not in _SAYS_NOTHING:
            result = self._finished(result)
            (self._judge or self._load_judge())(run, result)
        return result

    def _finished(self, result: Any) -> Any:
        if inspect.isawaitable(result) or _holds_awaitables(result):
            return self._event_loop.run(lambda: _awaited(result))
        return result

    def _load_judge(self) -> Callable[[JobRun, Any], None]:
        # With the first result that may say something, and not once for each: that costs as much as the rest.
        from django_graphile_worker.worker.execution.results import judge

        self._judge = judge
        return judge


def _judged(result: Any) -> Any:
    if type(result) not in _SAYS_NOTHING:
        from django_graphile_worker.worker.execution import results

        results.judge(_run_in_hand(), result)
    return result


async def _awaited(result: Any) -> Any:
    # A task may return what it should have awaited: a decorator that hides `async def`, a forgotten word.
    while inspect.isawaitable(result):
        result = await result
    if not _holds_awaitables(result):
        return result
    from django_graphile_worker.worker.execution import batch

    return await batch.gathered(result)


def _holds_awaitables(results: Any) -> bool:
    return isinstance(results, list | tuple) and any(map(inspect.isawaitable, results))


def _run_in_hand() -> JobRun:
    run = _current_run.get(None)
    if run is None:
        raise GraphileWorkerError(
            "get_result(): expected to be called where the worker called the middleware, got another thread. The "
            "job's database connections and its context belong to one thread: call it there, or through sync_to_async."
        )
    return run


def _unknown(run: JobRun) -> Any:
    raise UnknownTaskError(
        f"expected a task that this worker knows, got the one with id {run.claim.task_id}: "
        "it is no longer registered. Restart the worker, or bring the task back."
    )
