"""``@task(atomic=True)``: the task's effects and the end of its job in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.db import InterfaceError, OperationalError, transaction

from django_graphile_worker.logs.errors import log_exception
from django_graphile_worker.sql.releases import complete_jobs, complete_recorded
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.execution.job_run import JobRun, LostAtomicClaimError
from django_graphile_worker.worker.outcomes import Recorded
from django_graphile_worker.worker.recording import Recording

if TYPE_CHECKING:
    # A circle: the invoker makes atomic invokes.
    from django_graphile_worker.worker.execution.invoker import TaskInvoker

logger = logging.getLogger("django_graphile_worker.worker")

_IN_DOUBT = (
    "The connection broke during COMMIT, so it is unknown whether the transaction was committed. Nothing has to be "
    "done: if it was, the job is gone; if it was not, everything was rolled back and the job runs again."
)


def atomically(invoke: Callable[[JobRun], Any], invoker: TaskInvoker) -> Callable[[JobRun], Any]:
    """Return the function that runs a job of an atomic task; ``invoke`` runs the task, with its middleware."""

    def invoke_atomically(run: JobRun) -> Any:
        return _run(run, invoke_in_this_process, invoker)

    def invoke_in_this_process(run: JobRun) -> Any:
        # A process that the task forked shares the connection: it must end before it completes the job or rolls
        # back the transaction.
        generation, error = fork_guard.generation, None
        try:
            result = invoke(run)
            if run.has_progress:
                # Before the row of the job is deleted: the last report is stored only while the claim exists.
                invoker.finish_progress(run)
            return result
        except BaseException as raised:
            error = raised
            raise
        finally:
            fork_guard.end_child(generation, error)
            error = None

    return invoke_atomically


def _run(run: JobRun, invoke: Callable[[JobRun], Any], invoker: TaskInvoker) -> Any:
    """Run a job and delete its row in one transaction; return the result of the task."""
    is_completed, is_committed = False, False
    result: Any = None

    def note_commit() -> None:
        nonlocal is_committed
        is_committed = True

    try:
        with transaction.atomic(using=invoker.using):
            # Django calls hooks in the order of their registration: this hook before the hooks of the task.
            transaction.on_commit(note_commit, using=invoker.using)
            result = invoke(run)
            if run.stopping is not None:
                # A step that found the task at work must not interrupt the commit, or the hooks after it.
                run.stopping.leave_task()
            _complete(run, invoker)
            is_completed = True
    except BaseException as error:
        if not is_committed:
            if is_completed and isinstance(error, OperationalError | InterfaceError):
                error.add_note(_IN_DOUBT)
            raise
        # After the commit only an on_commit hook of the task can raise, and the job has succeeded.
        line = "%s #%s was committed, then an on_commit hook failed."
        log_exception(logger, logging.ERROR, line, run.identifier, run.claim.id, error=error)
    return result


def _complete(run: JobRun, invoker: TaskInvoker) -> None:
    """Delete the row and record the attempt, in the task's own transaction."""
    settings = invoker.settings
    with invoker.open_cursor() as cursor:
        if settings.history is not None or run.value_text is not None:
            assert run.task is not None
            outcome = Recorded(run.claim, run.duration, None, run.started, run.task, run.value_text)
            completed = Recording(settings).completed([outcome])
            ids = complete_recorded(cursor, completed, schema=settings.schema, is_patient=True)
        else:
            ids = complete_jobs(cursor, [run.claim], schema=settings.schema, is_patient=True)
    if not ids:
        raise LostAtomicClaimError("the claim was lost while the task ran: its effects were rolled back")
