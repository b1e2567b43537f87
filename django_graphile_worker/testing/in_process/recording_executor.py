"""The executor of a worker for tests: it keeps exceptions, and runs jobs inside the transaction of a test."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from django_graphile_worker.exceptions import LeftoverStateError
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.testing.in_process.job_connections import JobConnections
from django_graphile_worker.worker.execution.binding import Binding
from django_graphile_worker.worker.execution.executor import Executor
from django_graphile_worker.worker.execution.invoker import Invoke, TaskInvoker
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.outcomes import Failed, Outcome

if TYPE_CHECKING:
    from django_graphile_worker.testing.in_process.in_process_worker import InProcessWorker

# How each task is called: read from its parameters once, and not for each call of ``run_jobs()``.
_bindings: MutableMapping[Any, Binding] = WeakKeyDictionary()


class _CheckedInvoker:
    """The invoker of an executor, with a look for transactions that the task left open."""

    def __init__(self, invoker: TaskInvoker, roll_back_leftovers: Callable[[], None]) -> None:
        self._invoker = invoker
        self._roll_back_leftovers = roll_back_leftovers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._invoker, name)

    def of(self, task: Task[Any, Any] | None) -> Invoke:
        invoke = self._invoker.of(task)

        def checked(run: JobRun) -> Any:
            try:
                result = invoke(run)
            except BaseException:
                # The error of the task says more than that of its leftovers.
                with suppress(LeftoverStateError):
                    self._roll_back_leftovers()
                raise
            self._roll_back_leftovers()
            return result

        return checked


class RecordingExecutor(Executor):
    """An executor that keeps the exception of the last job, and looks for transactions that the job left open."""

    def __init__(self, worker: InProcessWorker) -> None:
        super().__init__(worker)
        # The options of tasks may change between two calls of run_jobs().
        self._may_expire = True
        self.error: BaseException | None = None
        self._connections = JobConnections()
        self._invoker.bindings = _bindings
        self._invoker.open_cursor = worker.caller_database.cursor_of_job
        self._invoker: Any = _CheckedInvoker(self._invoker, lambda: self._connections.roll_back_leftovers())

    def forget_tasks(self) -> None:
        """Read the options of the tasks again."""
        self._invoker.forget()

    def run(self, claim: Claim) -> Outcome:
        self.error = None
        with JobConnections() as self._connections:
            return super().run(claim)

    def _failed(self, run: JobRun, error: BaseException, remarks: Sequence[str]) -> Failed:
        self.error = error
        return super()._failed(run, error, remarks)

    def _failed_by_worker(self, run: JobRun, error: BaseException) -> Failed:
        self.error = error
        return super()._failed_by_worker(run, error)
