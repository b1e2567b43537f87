"""How the task of a job is invoked, prepared once per task, so that running a job is a single call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_graphile_worker import conf
from django_graphile_worker.exceptions import GraphileWorkerError, UnknownTaskError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.worker.execution.binding import Binding, bind
from django_graphile_worker.worker.execution.coroutines.awaiting import (
    PLAIN_RESULTS,
    awaited,
    coroutine_of,
    holds_awaitables,
)
from django_graphile_worker.worker.execution.coroutines.event_loop import EventLoop
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.execution.stops.abort import Aborts
from django_graphile_worker.worker.execution.task_helpers import Helpers

if TYPE_CHECKING:
    from django_graphile_worker.progress import Progress
    from django_graphile_worker.worker.execution.middleware import Handler
    from django_graphile_worker.worker.execution.progress_reports import ProgressReports
    from django_graphile_worker.worker.execution.time_limits import TimeLimits

logger = logging.getLogger("django_graphile_worker.worker")

Invoke = Callable[[JobRun], Any]

_current_run: ContextVar[JobRun] = ContextVar("graphile_worker_run")


class TaskInvoker:
    """Makes, for each task, the function that runs its jobs."""

    def __init__(
        self,
        *,
        settings: conf.Settings,
        using: str,
        installation: str,
        event_loop: EventLoop,
        aborts: Aborts,
        build_progress: Callable[[], ProgressReports] | None = None,
        build_deadlines: Callable[[], TimeLimits] | None = None,
    ) -> None:
        self._settings = settings
        self._using = using
        self._installation = installation
        self._event_loop = event_loop
        self._aborts = aborts
        # Made at the first report: few tasks report their progress.
        self._build_progress = build_progress or self._direct_reports
        self._progress: ProgressReports | None = None
        # None where time limits are not enforced, as in tests.
        self._build_deadlines = build_deadlines
        self._invokes: dict[Task[Any, Any] | None, Invoke] = {}
        self.forget()
        # How each task is called. The executor for tests keeps them for the next executor.
        self.bindings: MutableMapping[Task[Any, Any] | None, Binding] = {}
        # Opens a cursor in the transaction of an atomic task. The executor for tests has a faster cursor.
        self.open_cursor: Callable[[], AbstractContextManager[Any]] = lambda: connections[using].cursor()
        self._chains: dict[bool, Handler] | None = None
        self._raise_failures: Callable[[JobRun, Any], None] | None = None

    def forget(self) -> None:
        """Forget how tasks are called: the executor for tests reads their options again."""
        self._invokes = {None: _raise_unknown_task}

    def load_middleware(self) -> None:
        """Build a chain of middleware for plain tasks and for async tasks; may raise ConfigurationError."""
        if not self._settings.middleware:
            return
        # Late import: the start of a worker without middleware does not load it.
        from django_graphile_worker.worker.execution import middleware

        factories = middleware.load(self._settings.middleware)
        innermost = (
            middleware.Handler(call=self._call, is_async=False),
            middleware.Handler(call=self._acall, is_async=True),
        )
        self._chains = {each.is_async: middleware.build(factories, each, self._event_loop) for each in innermost}

    def of(self, task: Task[Any, Any] | None) -> Invoke:
        """Return the function that runs a job of this task and returns its result; it raises whatever went wrong."""
        return self._invokes.get(task) or self._prepare(task)

    def can_start(self, task: Task[Any, Any]) -> bool:
        """Return True if ``start()`` can start jobs of this task: a coroutine, around which nothing needs a thread."""
        is_limited = task.time_limit(self._settings.timeout) is not None
        return task.is_async and not (self._settings.middleware or task.atomic or is_limited)

    def start(self, run: JobRun) -> None:
        """Start the coroutine of a job, and do not wait for it: the function of ``of()`` does that later."""
        self.of(run.task)
        self._event_loop.start(coroutine_of(run, self.bindings[run.task], self._helpers), run)

    def _prepare(self, task: Task[Any, Any] | None) -> Invoke:
        assert task is not None
        binding = self.bindings.get(task)
        if binding is None:
            binding = self.bindings[task] = bind(task.function)
        invoke = self._choose(task, binding)
        seconds = task.time_limit(self._settings.timeout)
        if seconds is not None:
            invoke = self._limited(invoke, seconds)
        if task.result_seconds(self._settings.keep_results) is not None:
            invoke = self._with_kept_result(invoke)
        self._invokes[task] = self._atomically(invoke) if task.atomic else invoke
        return self._invokes[task]

    def _choose(self, task: Task[Any, Any], binding: Binding) -> Invoke:
        if self._chains is not None:
            return self._through_middleware(self._chains[task.is_async])
        helpers = self._helpers if task.time_limit(self._settings.timeout) is None else self._limited_helpers
        if task.is_async:
            return self._on_loop(binding, helpers)
        return self._with_payload(binding.function) if binding.is_plain else self._with_arguments(binding, helpers)

    def _with_payload(self, function: Callable[[Any], Any]) -> Invoke:
        def invoke(run: JobRun) -> Any:
            result = function(run.decode())
            return None if result is None else self._finish(run, result)

        return invoke

    def _with_arguments(self, binding: Binding, helpers: Callable[[JobRun], Helpers]) -> Invoke:
        def invoke(run: JobRun) -> Any:
            return self._finish(run, binding.call(run.decode(), helpers(run)))

        return invoke

    def _on_loop(self, binding: Binding, helpers: Callable[[JobRun], Helpers]) -> Invoke:
        def invoke(run: JobRun) -> Any:
            coroutine = run.coroutine or self._event_loop.start(coroutine_of(run, binding, helpers))
            return self._finish(run, self._event_loop.wait_for(coroutine))

        return invoke

    def _through_middleware(self, chain: Handler) -> Invoke:
        def invoke(run: JobRun) -> Any:
            run.decode()
            _current_run.set(run)
            job = run.job
            if chain.is_async:
                result = self._event_loop.run(lambda: awaited(chain.call(job)))
            else:
                result = self._await_if_needed(chain.call(job))
            # The innermost handler has checked the result of the task. This is the result of the outermost middleware.
            if type(result) not in PLAIN_RESULTS:
                # Late import: most results are plain.
                from django_graphile_worker.worker.execution import results

                results.raise_failures(run, result)
            return result

        return invoke

    def _limited(self, invoke: Invoke, seconds: float) -> Invoke:
        # Late import: only tasks with a time limit need it.
        from django_graphile_worker.worker.execution.time_limits import limited

        return limited(invoke, seconds, None if self._build_deadlines is None else self._build_deadlines())

    def _with_kept_result(self, invoke: Invoke) -> Invoke:
        # Late import: only tasks that keep their results need it.
        from django_graphile_worker.worker.execution.kept_results import encode_result

        def invoke_and_encode(run: JobRun) -> Any:
            result = invoke(run)
            run.value_text = encode_result(run.identifier, result, max_size=self._settings.max_payload_size)
            return result

        return invoke_and_encode

    def _atomically(self, invoke: Invoke) -> Invoke:
        # Late import: only atomic tasks need it.
        from django_graphile_worker.worker.execution.atomic import atomically

        return atomically(invoke, self.finish_progress, self.open_cursor, using=self._using, settings=self._settings)

    # The innermost handlers, inside all middleware. Middleware may drop a result. So the awaitables in a result are
    # awaited here, and its failures are raised here, as if the task had raised them.

    def _call(self, job: Job) -> Any:
        return _without_failures(self._await_if_needed(self._call_task(job)))

    async def _acall(self, job: Job) -> Any:
        return _without_failures(await awaited(self._call_task(job)))

    def _call_task(self, job: Job) -> Any:
        run = _run_of_this_context()
        if job.payload is not run.payload:
            run.replace_payload(job.payload)
        helpers = self._helpers if run.deadline is None else self._limited_helpers
        return self.bindings[run.task].call(job.payload, helpers(run, job))

    def _limited_helpers(self, run: JobRun, job: Job | None = None) -> Helpers:
        helpers = self._helpers(run, job)
        helpers.limit(run.deadline)
        return helpers

    def _helpers(self, run: JobRun, job: Job | None = None) -> Helpers:
        return Helpers(
            lambda: job or run.job,
            using=self._using,
            installation=self._installation,
            build_abort=lambda: self._aborts.of(run),
            report_progress=lambda progress: self._report_progress(run, progress),
        )

    def _report_progress(self, run: JobRun, progress: Progress) -> None:
        run.has_progress = run.is_marked = True
        if self._progress is None:
            self._progress = self._build_progress()
        self._progress.report(run.claim, progress)

    def finish_progress(self, run: JobRun) -> None:
        """Have the last report of a run stored. An error here does not change the outcome of the job."""
        try:
            if self._progress is not None:
                self._progress.finish(run.claim)
        except Exception:
            logger.exception("The last progress of job %s could not be stored.", run.claim.id)

    def _direct_reports(self) -> ProgressReports:
        # Late import: only executors without a worker report without a service.
        from django_graphile_worker.worker.execution.progress_reports import DirectReports

        return DirectReports(using=self._using, schema=self._settings.schema)

    def _finish(self, run: JobRun, result: Any) -> Any:
        """Await the awaitables that the task returned, raise the failures in its result, and return the result."""
        if type(result) not in PLAIN_RESULTS:
            result = self._await_if_needed(result)
            (self._raise_failures or self._load_raise_failures())(run, result)
        return result

    def _await_if_needed(self, result: Any) -> Any:
        if inspect.isawaitable(result) or holds_awaitables(result):
            return self._event_loop.run(lambda: awaited(result))
        return result

    def _load_raise_failures(self) -> Callable[[JobRun, Any], None]:
        # Late import: most results are plain. Kept on self, as an import statement for each job costs as much as the
        # rest of the check.
        from django_graphile_worker.worker.execution.results import raise_task_failures

        self._raise_failures = raise_task_failures
        return raise_task_failures


def _without_failures(result: Any) -> Any:
    """Return the result of a task, or raise the failures that it holds."""
    if type(result) not in PLAIN_RESULTS:
        # Late import: most results are plain.
        from django_graphile_worker.worker.execution import results

        results.raise_task_failures(_run_of_this_context(), result)
    return result


def _run_of_this_context() -> JobRun:
    run = _current_run.get(None)
    if run is None:
        raise GraphileWorkerError(
            "get_result(): expected to be called where the worker called the middleware, got another thread. The "
            "job's database connections and its context belong to one thread: call it there, or through sync_to_async."
        )
    return run


def _raise_unknown_task(run: JobRun) -> Any:
    raise UnknownTaskError(
        f"expected a task that is registered in this worker, got the task with id {run.claim.task_id}: "
        "it is no longer registered. Restart the worker, or register the task again."
    )
