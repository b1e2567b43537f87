"""How the task of a job is invoked, prepared once per task, so that running a job is a single call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from time import monotonic
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_graphile_worker import payloads
from django_graphile_worker.current import current_run
from django_graphile_worker.exceptions import GraphileWorkerError, PayloadError, ResultError, UnknownTaskError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.telemetry import observers
from django_graphile_worker.worker.execution import middleware, retry
from django_graphile_worker.worker.execution.atomic import atomically
from django_graphile_worker.worker.execution.binding import Binding, bind
from django_graphile_worker.worker.execution.event_loop import EventLoop
from django_graphile_worker.worker.execution.helpers import Aborts, Helpers
from django_graphile_worker.worker.execution.job_run import JobRun, LostAtomicClaimError
from django_graphile_worker.worker.execution.middleware import Handler
from django_graphile_worker.worker.execution.results import (
    PLAIN_RESULTS,
    awaited,
    holds_awaitables,
    raise_failures,
    raise_task_failures,
)
from django_graphile_worker.worker.outcomes import CancelledByWorker

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

logger = logging.getLogger("django_graphile_worker.worker")

Invoke = Callable[[JobRun], Any]


class TaskInvoker:
    """Makes, for each task, the function that runs its jobs."""

    def __init__(self, worker: DatabaseWorker, *, event_loop: EventLoop, aborts: Aborts) -> None:
        self._worker = worker
        self.settings = worker.settings
        self.using = worker.place.using
        self.installation = worker.place.installation
        self.aborts = aborts
        self._event_loop = event_loop
        self._invokes: dict[Task[Any, Any] | None, Invoke] = {None: _raise_unknown_task}
        # How each task is called.
        self.bindings: dict[Task[Any, Any] | None, Binding] = {}
        # The chains of middleware for plain and for async tasks; None without middleware.
        self._chains: dict[bool, Handler] | None = None
        # Whether traces or errors are reported, and the modules that do it.
        self._is_observed = observers.are_asked_for()
        self._observers: list[observers.Observer] = []

    def load_middleware(self) -> None:
        """Load observers, and build chains of middleware for plain and async tasks; may raise ConfigurationError."""
        self._observers = observers.load()
        if not self.settings.middleware:
            return
        factories = middleware.load(self.settings.middleware)
        innermost = (Handler(call=self._call, is_async=False), Handler(call=self._acall, is_async=True))
        self._chains = {each.is_async: middleware.build(factories, each, self._event_loop) for each in innermost}

    def of(self, task: Task[Any, Any] | None) -> Invoke:
        """Return the function that runs a job of this task and returns its result; it raises whatever went wrong."""
        return self._invokes.get(task) or self._prepare(task)

    def can_start(self, task: Task[Any, Any]) -> bool:
        """Return True if ``start()`` can start jobs of this task: a coroutine, around which nothing needs a thread."""
        is_limited = task.time_limit(self.settings.timeout) is not None
        return task.is_async and not (self.settings.middleware or self._is_observed or task.atomic or is_limited)

    def start(self, run: JobRun) -> None:
        """Start the coroutine of a job, and do not wait for it: the function of ``of()`` does that later."""
        self.of(run.task)
        self._event_loop.start(self._coroutine_of(run, self.bindings[run.task]), run)

    def _prepare(self, task: Task[Any, Any] | None) -> Invoke:
        assert task is not None
        binding = self.bindings.get(task)
        if binding is None:
            binding = self.bindings[task] = bind(task.function)
        invoke = self._choose(task, binding)
        seconds = task.time_limit(self.settings.timeout)
        if seconds is not None:
            invoke = self._limited(invoke, seconds)
        if task.result_seconds(self.settings.keep_results) is not None:
            invoke = self._with_kept_result(invoke)
        if task.atomic:
            invoke = atomically(invoke, self)
        if self._observers:
            invoke = self._observed(invoke)
        self._invokes[task] = invoke
        return invoke

    def _choose(self, task: Task[Any, Any], binding: Binding) -> Invoke:
        if self._chains is not None:
            return self._through_middleware(self._chains[task.is_async])
        if task.is_async:
            return self._on_loop(binding)
        return self._with_payload(binding.function) if binding.is_plain else self._with_arguments(binding)

    # The functions that call a task, and no others, have the name ``invoke``: a stop may interrupt a run only inside of
    # them. See ``control/position.py``.

    def _with_payload(self, function: Callable[[Any], Any]) -> Invoke:
        def invoke(run: JobRun) -> Any:
            result = function(run.decode())
            return None if result is None else self._finish(run, result)

        return invoke

    def _with_arguments(self, binding: Binding) -> Invoke:
        def invoke(run: JobRun) -> Any:
            return self._finish(run, binding.call(run.decode(), Helpers(run, self)))

        return invoke

    def _on_loop(self, binding: Binding) -> Invoke:
        def invoke(run: JobRun) -> Any:
            coroutine = run.coroutine or self._event_loop.start(self._coroutine_of(run, binding))
            return self._finish(run, self._event_loop.wait_for(coroutine))

        return invoke

    def _coroutine_of(self, run: JobRun, binding: Binding) -> Callable[[], Awaitable[Any]]:
        """Return the function that calls the async task of a job. The payload is decoded now."""
        payload = run.decode()
        if binding.is_plain:
            return lambda: awaited(binding.function(payload))
        helpers = Helpers(run, self)
        return lambda: awaited(binding.call(payload, helpers))

    def _through_middleware(self, chain: Handler) -> Invoke:
        def invoke(run: JobRun) -> Any:
            run.decode()
            job = run.job
            if chain.is_async:
                result = self._event_loop.run(lambda: awaited(chain.call(job)))
            else:
                result = self._await_if_needed(chain.call(job))
            # The innermost handler has checked the result of the task. This is the result of the outermost middleware.
            if type(result) not in PLAIN_RESULTS:
                raise_failures(run, result)
            return result

        return invoke

    def _limited(self, invoke: Invoke, seconds: float) -> Invoke:
        """Return the function with a time limit."""
        # None in the worker of a test, in which the task only learns its deadline.
        stops: Any = self._worker.run_stops
        if stops is None:

            def invoke_with_deadline(run: JobRun) -> Any:
                run.deadline = monotonic() + seconds
                return invoke(run)

            return invoke_with_deadline

        begin, end = stops.deadlines.begin, stops.deadlines.end

        def invoke_limited(run: JobRun) -> Any:
            begin(run, seconds)
            try:
                return invoke(run)
            finally:
                end(run)

        return invoke_limited

    def _with_kept_result(self, invoke: Invoke) -> Invoke:
        def invoke_and_encode(run: JobRun) -> Any:
            result = invoke(run)
            run.value_text = encode_result(run.identifier, result, max_size=self.settings.max_payload_size)
            return result

        return invoke_and_encode

    def _observed(self, invoke: Invoke) -> Invoke:
        """Return the function that tells the observers of runs: outermost, as a commit may fail, too."""

        def invoke_observed(run: JobRun) -> Any:
            end = run.end_observed = observers.begin(self._observers, run)
            try:
                result = invoke(run)
            except BaseException as error:
                end(self._ending(run, error), error)
                raise
            end("succeeded", None)
            return result

        return invoke_observed

    def _ending(self, run: JobRun, error: BaseException) -> observers.Ending:
        """Return how a run ended that raised an exception."""
        if run.stopping is not None and run.stopping.stop.kind == "cancelled":
            return "cancelled"
        is_asked = self.aborts.is_set_for(run) and retry.asks_to_run_at_once(error)
        if is_asked or isinstance(error, CancelledByWorker | LostAtomicClaimError):
            return "interrupted"
        is_last = run.claim.attempts >= run.claim.max_attempts
        return "retry_later" if retry.asks_to_run_again(error) and not is_last else "failed"

    def open_cursor(self) -> AbstractContextManager[Any]:
        """Return a cursor in the transaction of an atomic task."""
        return connections[self.using].cursor()

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
        return self.bindings[run.task].call(job.payload, Helpers(run, self, job))

    def report_progress(self, run: JobRun, progress: Progress) -> None:
        """Take the progress that a task reports."""
        run.has_progress = run.is_marked = True
        self._worker.progress.report(run.claim, progress)

    def finish_progress(self, run: JobRun) -> None:
        """Have the last report of a run stored. An error here does not change the outcome of the job."""
        try:
            self._worker.progress.finish(run.claim)
        except Exception:
            logger.exception("The last progress of job %s could not be stored.", run.claim.id)

    def _finish(self, run: JobRun, result: Any) -> Any:
        """Await the awaitables that the task returned, raise the failures in its result, and return the result."""
        if type(result) not in PLAIN_RESULTS:
            result = self._await_if_needed(result)
            raise_task_failures(run, result)
        return result

    def _await_if_needed(self, result: Any) -> Any:
        if inspect.isawaitable(result) or holds_awaitables(result):
            return self._event_loop.run(lambda: awaited(result))
        return result


def encode_result(identifier: str, result: Any, *, max_size: int) -> str:
    """Return the JSON text of a result; raise ResultError with the part of it that JSON cannot hold.

    The error is final: the task has done its work, and another attempt would repeat it and return the same.
    """
    try:
        return payloads.encode(result, max_size=max_size)
    except PayloadError as error:
        text = str(error).removeprefix("payload: ")
        raise ResultError(
            f"the result of {identifier}: {text} Return plain values, or keep no result: @task(keep_result=False)."
        ) from None


def _without_failures(result: Any) -> Any:
    """Return the result of a task, or raise the failures that it holds."""
    if type(result) not in PLAIN_RESULTS:
        raise_task_failures(_run_of_this_context(), result)
    return result


def _run_of_this_context() -> JobRun:
    run = current_run()
    if not isinstance(run, JobRun):
        raise GraphileWorkerError(
            "get_result() was called in another thread than the middleware. The database connections and the context "
            "of a job belong to one thread: call it there, or through sync_to_async."
        )
    return run


def _raise_unknown_task(run: JobRun) -> Any:
    raise UnknownTaskError(
        f"The task with the id {run.claim.task_id} is no longer registered in this worker. "
        "Restart the worker, or register the task again."
    )
