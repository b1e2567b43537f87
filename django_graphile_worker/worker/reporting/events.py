"""What the parts of a worker have to tell, as signals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django_graphile_worker import signals
from django_graphile_worker.conf import DEFAULT
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.outcomes import Outcome
from django_graphile_worker.worker.reporting.outage import Outage
from django_graphile_worker.worker.reporting.signal_sender import SignalSender

if TYPE_CHECKING:
    from django_graphile_worker.sql.exhausted_jobs import Exhausted
    from django_graphile_worker.sql.recovery import Recovered, Unlocked


class WorkerEvents:
    """Turns the parts' calls into signals; sends them through the announcer."""

    def __init__(
        self,
        announcer: SignalSender,
        *,
        worker_id: Callable[[], str],
        database: str,
        installation: str = DEFAULT,
        job_of: Callable[[Claim], Job],
        troubles: Callable[[], Iterable[BaseException | None]] = tuple,
    ) -> None:
        self._announcer = announcer
        self._outage = Outage(troubles, on_over=self._answered)
        self._worker_id = worker_id
        self._about = {"database": database, "installation": installation}
        self._job_of = job_of

    def tell(self, signal: signals.Event, **arguments: Any) -> None:
        about = {"worker_id": self._worker_id(), **self._about}
        self._announcer.announce(signal, **{**about, **arguments})

    def trouble(self, action: str, error: BaseException, retry_in: float) -> None:
        self._outage.begin(error)
        self.tell(signals.database_trouble, action=action, error=error, retry_in=retry_in)

    def look(self) -> float:
        """See whether the database's silence is over; the seconds until the next look."""
        return self._outage.look()

    def _answered(self, duration: float) -> None:
        self.tell(signals.database_answered, duration=duration)

    def listening(self) -> None:
        self.tell(signals.listening_started)

    def deaf(self, error: Exception, retry_in: float) -> None:
        self.tell(signals.listening_lost, error=error, retry_in=retry_in)

    def claimed(self, claims: Sequence[Claim], duration: float) -> None:
        if signals.jobs_claimed.receivers:
            jobs = [self._job_of(claim) for claim in claims]
            self.tell(signals.jobs_claimed, jobs=jobs, duration=duration)

    def released(self, outcomes: Sequence[Outcome]) -> None:
        if signals.job_released.receivers:
            for outcome in outcomes:
                job = self._job_of(outcome.claim)
                self.tell(signals.job_released, job=job, outcome=type(outcome).__name__)

    def lost(self, outcome: Outcome) -> None:
        job = self._job_of(outcome.claim)
        self.tell(signals.claim_lost, job=job, outcome=type(outcome).__name__)

    def recovered(self, recovered: Recovered) -> None:
        self.tell(signals.jobs_recovered, job_ids=recovered.job_ids, dead_worker_ids=recovered.dead_worker_ids)
        self._failed_for_good(recovered.exhausted)

    def stale_locks(self, unlocked: Unlocked) -> None:
        self.tell(signals.stale_locks_released, jobs=unlocked.jobs, queues=unlocked.queues)
        self._failed_for_good(unlocked.exhausted)

    def indexes_missed(self, missing: Sequence[str], incomplete: Sequence[str]) -> None:
        self.tell(signals.indexes_missed, missing=tuple(missing), incomplete=tuple(incomplete))

    def _failed_for_good(self, exhausted: Iterable[Exhausted]) -> None:
        # Nobody ran them to their end, so nobody else will tell it.
        for each in exhausted:
            self.tell(signals.job_permanently_failed, job=each.job, duration=each.seconds, error=each.error)
