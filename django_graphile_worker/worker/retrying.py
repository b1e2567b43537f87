"""A failed run to what the releaser stores: the error's text, and when to try again."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django_graphile_worker import payloads
from django_graphile_worker.exceptions import PermanentFailure, RetryLater
from django_graphile_worker.worker import batch, failure
from django_graphile_worker.worker.batch import BatchFailure
from django_graphile_worker.worker.outcome import Failed
from django_graphile_worker.worker.run import Run

# PostgreSQL's dates end; a delay that goes beyond them would spoil the release of others too.
LONGEST_DELAY = timedelta(days=36_525).total_seconds()
_MOST_TRACEBACKS = 10


def failed(run: Run, error: BaseException, *, limit: int, leftovers: Sequence[str] = ()) -> Failed:
    """The outcome of a run that ended with an exception."""
    delay, remark = _delay(run, error)
    remarks = [remark, *(f"The task also left {leftover}." for leftover in leftovers)]
    return Failed(
        run.claim,
        run.duration,
        error=_text(error, limit, "\n".join(filter(None, remarks))),
        delay=delay,
        permanent=_is_permanent(error),
        payload_text=remaining_payload(run, error),
    )


def retry_in(outcome: Failed) -> float | None:
    """Seconds until the next attempt; None when there is none."""
    claim = outcome.claim
    if outcome.permanent or claim.attempts >= claim.max_attempts:
        return None
    return outcome.delay if outcome.delay is not None else math.exp(min(claim.attempts, 10))


def remaining_payload(run: Run, error: BaseException | None) -> str | None:
    """What is left of an array payload; None when all of it is."""
    # A transaction that was rolled back took the items that went well with it.
    if not isinstance(error, BatchFailure) or run.is_atomic:
        return None
    try:
        if run.is_rewritten:
            items = [run.payload[index] for index in error.failures]
            return payloads.encode(items, max_size=sys.maxsize)
        return batch.remaining(run.claim.payload_text, error)
    except Exception:
        # Whatever the task made of its payload: all of it again is better than none.
        return None


def wants_to_run_at_once(error: BaseException | None) -> bool:
    """Did it end for no other reason than to be run again, all that failed of it?"""
    if isinstance(error, BatchFailure):
        return error.delay == 0
    return isinstance(error, RetryLater) and not error.delay


def _text(error: BaseException, limit: int, remark: str) -> str:
    if not isinstance(error, BatchFailure):
        return failure.describe(error, limit=limit, remark=remark)
    lines = [f"Batch failures: {error}."]
    lines += [f"[{index}] {failure.summary(each)}" for index, each in error.failures.items()]
    # An exception that was returned rather than raised has said everything in its line.
    traces = ((index, failure.trace(each)) for index, each in list(error.failures.items())[:_MOST_TRACEBACKS])
    details = [f"[{index}] {trace}" for index, trace in traces if trace]
    return failure.cut("\n\n".join(filter(None, ["\n".join(lines), remark, *details])), limit)


def _is_permanent(error: BaseException) -> bool:
    return error.is_permanent if isinstance(error, BatchFailure) else isinstance(error, PermanentFailure)


def _delay(run: Run, error: BaseException) -> tuple[float | None, str]:
    """Seconds until the next attempt (None: the usual), and what is to be said about it."""
    if isinstance(error, RetryLater):
        return _bounded(error.delay.total_seconds()), ""
    if isinstance(error, BatchFailure) and error.delay is not None:
        return _bounded(error.delay), ""
    backoff = run.task.backoff if run.task is not None else None
    if backoff is None or _is_permanent(error):
        return None, ""
    try:
        answer = backoff(run.claim.attempts, error) if callable(backoff) else backoff
        return (None, "") if answer is None else (_bounded(_seconds(answer)), "")
    except BaseException as mistake:  # the back-off is the site's code too
        return None, f"The usual back-off is used, as the task's own failed: {failure.summary(mistake)}"


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
