"""``@task(atomic=True)``: the task's effects and the end of its job in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.db import InterfaceError, OperationalError, connections, transaction

from django_graphile_worker.sql.releases import complete_in_transaction
from django_graphile_worker.worker.execution.job_run import JobRun, LostAtomicClaimError

logger = logging.getLogger("django_graphile_worker.worker")

_IN_DOUBT = (
    "The connection broke during COMMIT, so the worker cannot tell whether it happened. "
    "It need not: if it did, the job is gone; if it did not, nothing of it is left and it runs again."
)


def run_atomically(run: JobRun, perform: Callable[[JobRun], Any], *, using: str, schema: str) -> Any:
    """Perform a job and delete its row; both are kept, or neither is."""
    ended, committed = False, False
    result: Any = None

    def note_commit() -> None:
        nonlocal committed
        committed = True

    try:
        with transaction.atomic(using=using):
            # The first hook to be registered is the first to be called.
            transaction.on_commit(note_commit, using=using)
            result = perform(run)
            _complete(run, using=using, schema=schema)
            ended = True
    except BaseException as error:
        if not committed:
            if ended and isinstance(error, OperationalError | InterfaceError):
                error.add_note(_IN_DOUBT)
            raise
        # Only a hook of the task's own can have raised now, and the job is done.
        logger.exception("%s #%s was committed, then an on_commit hook failed.", run.identifier, run.claim.id)
    return result


def _complete(run: JobRun, *, using: str, schema: str) -> None:
    with connections[using].cursor() as cursor:
        if not complete_in_transaction(cursor, run.claim, schema=schema):
            raise LostAtomicClaimError("the claim was lost while the task ran: its effects were rolled back")
