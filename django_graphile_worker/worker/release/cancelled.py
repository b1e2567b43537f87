"""Reports claims that have ended because their jobs were cancelled, whatever the outcomes of their runs were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql.cancelled_claims import CancelledClaim
from django_graphile_worker.worker.job_stop import Stop
from django_graphile_worker.worker.outcomes import Cancelled, Expired, Interrupted, Outcome

if TYPE_CHECKING:
    from typing import Protocol

    class CancelEvents(Protocol):
        """What is reported to the worker."""

        def released(self, outcomes: Sequence[Outcome]) -> None: ...

        def cancelled(self, outcome: Cancelled) -> None: ...


class CancelledReleases:
    """The claims that the last statement ended as cancelled, and the reports about released outcomes."""

    def __init__(self, events: CancelEvents) -> None:
        self._events = events
        # By the ids of the jobs.
        self._claims: dict[int, CancelledClaim] = {}

    def note(self, claim: CancelledClaim) -> None:
        """Note a claim that the statement under way has ended."""
        self._claims[claim.id] = claim

    def report_released(self, outcomes: Sequence[Outcome]) -> None:
        """Report outcomes that the database has accepted: those of cancelled jobs as cancelled."""
        if not self._claims:
            self._events.released(outcomes)
            return
        claims, self._claims = self._claims, {}
        ended = [_as_cancelled(outcome, claims.get(outcome.claim.id)) for outcome in outcomes]
        self._events.released(ended)
        self.report_ended_before(ended)

    def report_ended_before(self, outcomes: Iterable[Outcome]) -> None:
        """Report the cancelled jobs among outcomes whose claims have ended."""
        for outcome in outcomes:
            if isinstance(outcome, Cancelled):
                self._events.cancelled(outcome)


def has_begun(outcome: Outcome) -> bool:
    """Return True if a result is lost with the claim: a job that never began has no result."""
    if isinstance(outcome, Expired):
        return False
    return not isinstance(outcome, Interrupted | Cancelled) or outcome.has_begun


def _as_cancelled(outcome: Outcome, claim: CancelledClaim | None) -> Outcome:
    """Return the outcome of a run whose claim has ended as cancelled."""
    if claim is None:
        return outcome
    stop = Stop(kind="cancelled", reason=claim.reason, by=claim.cancelled_by)
    return Cancelled(outcome.claim, outcome.duration, stop, has_begun=has_begun(outcome))
