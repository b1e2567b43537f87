"""What an outcome means for the claim that it ends."""

from __future__ import annotations

from django_graphile_worker.sql.cancelled_claims import CancelledClaim
from django_graphile_worker.sql.releases import Failure
from django_graphile_worker.worker.job_stop import Stop
from django_graphile_worker.worker.outcomes import Cancelled, Expired, Failed, Interrupted, Outcome


def has_begun(outcome: Outcome) -> bool:
    """Return True if a result is lost with the claim: a job that never began has no result."""
    if isinstance(outcome, Expired):
        return False
    return not isinstance(outcome, Interrupted | Cancelled) or outcome.has_begun


def as_cancelled(outcome: Outcome, claim: CancelledClaim | None) -> Outcome:
    """Return the outcome of a run whose claim has ended as cancelled, whatever the run itself came to."""
    if claim is None:
        return outcome
    stop = Stop(kind="cancelled", reason=claim.reason, by=claim.cancelled_by)
    return Cancelled(outcome.claim, outcome.duration, stop, has_begun=has_begun(outcome))


def failure_of(outcome: Failed) -> Failure:
    """Return what is stored of an attempt that failed."""
    return Failure(
        claim=outcome.claim,
        error=outcome.error,
        delay=outcome.delay,
        permanent=outcome.permanent,
        payload_text=outcome.payload_text,
        duration=max(int(outcome.duration * 1e6), 0),
    )
