"""A failed run to what the releaser stores: the error's text, and when to try again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django_graphile_worker.attempts import final_remark
from django_graphile_worker.exceptions import BatchFailure, PayloadError, PermanentFailure, RetryLater
from django_graphile_worker.worker.execution import batch, error_text
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.outcomes import Failed

# PostgreSQL's dates end; a delay that goes beyond them would spoil the release of others too.
LONGEST_DELAY = timedelta(days=36_525).total_seconds()
_MOST_TRACEBACKS = 10


def failed(
    run: JobRun, error: BaseException, *, limit: int, is_redacted: bool = True, leftovers: Sequence[str] = ()
) -> Failed:
    """The outcome of a run that ended with an exception."""
    delay, remark = _delay(run, error)
    is_permanent = _is_permanent(error)
    final = final_remark(run.claim.attempts, run.claim.max_attempts) if is_permanent else ""
    remarks = [final, remark, *(f"The task also left {leftover}." for leftover in leftovers)]
    text = _text(error, limit, "\n".join(filter(None, remarks)))
    return Failed(
        run.claim,
        run.duration,
        error=error_text.redacted(text, limit) if is_redacted else text,
        delay=delay,
        permanent=is_permanent,
        payload_text=remaining_payload(run, error),
    )


def retry_in(outcome: Failed) -> float | None:
    """Seconds until the next attempt; None when there is none."""
    claim = outcome.claim
    if outcome.permanent or claim.attempts >= claim.max_attempts:
        return None
    return outcome.delay if outcome.delay is not None else math.exp(min(claim.attempts, 10))


def remaining_payload(run: JobRun, error: BaseException | None) -> str | None:
    """What is left of an array payload; None when all of it is."""
    # A transaction that was rolled back took the items that went well with it.
    if not isinstance(error, BatchFailure) or run.is_atomic:
        return None
    try:
        # The row's own text, also where middleware made another payload of it: that one may be a secret's clear text.
        return batch.remaining(run.claim.payload_text, error)
    except Exception:
        # Whatever the text is: all of it again is better than none.
        return None


def wants_to_run_at_once(error: BaseException | None) -> bool:
    """Did it end for no other reason than to be run again, all that failed of it?"""
    return error is not None and _asked_delay(error) == 0


def _text(error: BaseException, limit: int, remark: str) -> str:
    if not isinstance(error, BatchFailure):
        return error_text.describe(error, limit=limit, remark=remark)
    lines = [_batch_summary(error)]
    lines += [f"[{index}] {error_text.summary(each)}" for index, each in error.failures.items()]
    # An exception that was returned rather than raised has said everything in its line.
    traces = ((index, error_text.trace(each)) for index, each in list(error.failures.items())[:_MOST_TRACEBACKS])
    details = [f"[{index}] {trace}" for index, trace in traces if trace]
    return error_text.cut("\n\n".join(filter(None, ["\n".join(lines), remark, *details])), limit)


def _batch_summary(error: BatchFailure) -> str:
    """The first line, by which errors are grouped: it begins with the class of the failures when they share one."""
    failures = list(error.failures.values())
    if len({type(each) for each in failures}) == 1:
        first_line = error_text.summary(failures[0]).partition("\n")[0]
        return f"{first_line} ({error.share})"
    return f"BatchFailure: {error}"


def _causes(error: BaseException) -> list[BaseException]:
    """What went wrong, one by one: the members of groups, the failed items of a batch, or the error itself."""
    if isinstance(error, BatchFailure):
        members = tuple(error.failures.values())
    elif isinstance(error, BaseExceptionGroup):
        members = error.exceptions
    else:
        return [error]
    return [cause for member in members for cause in _causes(member)]


def _is_permanent(error: BaseException) -> bool:
    return all(map(_is_final, _causes(error)))


def _is_final(cause: BaseException) -> bool:
    return isinstance(cause, PermanentFailure) or (isinstance(cause, PayloadError) and cause.is_misfit)


def _asked_delay(error: BaseException) -> float | None:
    """The longest delay, when everything that went wrong asks for one."""
    causes = _causes(error)
    delays = [cause.delay.total_seconds() for cause in causes if isinstance(cause, RetryLater)]
    return max(delays) if len(delays) == len(causes) else None


def _delay(run: JobRun, error: BaseException) -> tuple[float | None, str]:
    """Seconds until the next attempt (None: the usual), and what is to be said about it."""
    asked = _asked_delay(error)
    if asked is not None:
        return _bounded(asked), ""
    backoff = run.task.backoff if run.task is not None else None
    if backoff is None or _is_permanent(error):
        return None, ""
    try:
        answer = backoff(run.claim.attempts, error) if callable(backoff) else backoff
        return (None, "") if answer is None else (_bounded(_seconds(answer)), "")
    except BaseException as mistake:  # the back-off is the site's code too
        return None, f"The usual back-off is used, as the task's own failed: {error_text.summary(mistake)}"


def _seconds(answer: Any) -> float:
    seconds = answer.total_seconds() if isinstance(answer, timedelta) else answer
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not seconds >= 0:
        raise ValueError(
            f"expected backoff to give a timedelta, a number of seconds of zero or more, or None, got {answer!r}"
        )
    return float(seconds)


def _bounded(seconds: float) -> float:
    return min(seconds, LONGEST_DELAY)
