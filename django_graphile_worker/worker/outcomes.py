"""The outcomes of a job's run, which the executor passes to the releaser, and the request to stop a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, Literal, NamedTuple

from django_graphile_worker.job_flags import as_time
from django_graphile_worker.jobs import usual_backoff
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.limits import KeyClosing


@dataclass(frozen=True, slots=True)
class RunStop:
    """The request to stop one run of a job. It concerns the job, and not the worker, which continues."""

    kind: Literal["timeout", "cancelled"]
    # Why, as text for people: the reason of a cancellation, or the time limit.
    reason: str = ""
    # Who requested it, as text for people; empty for a time limit.
    by: str = ""


class CancelledByWorker(BaseException):
    """Raised where the worker, and not the task, cancelled a coroutine: the grace period is over."""


class EndedWithoutThread(BaseException):
    """Raised on the thread of a run that has ended without it: another thread has its slot, and this thread ends."""


class _Ended:
    """A run that has ended. Every job makes an instance, so making it must be cheap."""

    __slots__ = ("claim", "duration")

    def __init__(self, claim: Claim, duration: float) -> None:
        self.claim = claim
        self.duration = duration

    def __repr__(self) -> str:
        return f"<{type(self).__name__} #{self.claim.id} after {self.duration:.3f} s>"


class Done(_Ended):
    """A run whose task returned."""

    __slots__ = ("result",)

    def __init__(self, claim: Claim, duration: float, result: Any = None) -> None:
        # Assigned here instead of by the parent, which saves a call for nearly every job.
        self.claim = claim
        self.duration = duration
        # What the task returned. It is not stored, except for the outcomes that are recorded.
        self.result = result


class Succeeded(Done):
    """The job has succeeded, and the releaser deletes its row."""

    __slots__ = ()


class Recorded(Done):
    """The job has succeeded, and the releaser deletes its row and records the attempt: its result, or its history."""

    __slots__ = ("started", "task", "value_text")

    def __init__(
        self, claim: Claim, duration: float, result: Any, started: float, task: Task[Any, Any], value_text: str | None
    ) -> None:
        self.claim = claim
        self.duration = duration
        self.result = result
        # By the monotonic clock.
        self.started = started
        self.task = task
        # The result as JSON; None if it is not kept.
        self.value_text = value_text


class CompletedAtomically(Done):
    """The task's own transaction has deleted the job's row; only its queue is left to release."""

    __slots__ = ()


class Interrupted(_Ended):
    """The worker interrupted the job, which is returned without costing an attempt."""

    __slots__ = ("has_begun", "payload_text")

    def __init__(
        self, claim: Claim, duration: float, payload_text: str | None = None, *, has_begun: bool = True
    ) -> None:
        super().__init__(claim, duration)
        self.has_begun = has_begun
        # The items of an array payload that are left, if some of them are done.
        self.payload_text = payload_text


class QueuePause(NamedTuple):
    """The pause of a job's queue that the task asked for."""

    seconds: float
    reason: str


class Failed(_Ended):
    """The attempt failed: the error is stored and the next attempt scheduled."""

    __slots__ = (
        "closings",
        "delay",
        "ended",
        "error",
        "exception_class",
        "payload_text",
        "permanent",
        "queue_pause",
        "task",
    )

    def __init__(
        self,
        claim: Claim,
        duration: float,
        error: str,
        *,
        delay: float | None = None,
        permanent: bool = False,
        payload_text: str | None = None,
        task: Task[Any, Any] | None = None,
        exception_class: str | None = None,
        queue_pause: QueuePause | None = None,
        closings: Sequence[KeyClosing] = (),
    ) -> None:
        super().__init__(claim, duration)
        self.error = error
        # By the monotonic clock.
        self.ended = monotonic()
        self.task = task
        # The dotted path of the class of the exception.
        self.exception_class = exception_class
        # Seconds until the next attempt; None for the usual back-off.
        self.delay = delay
        self.permanent = permanent
        # The items of an array payload that are left: the items that failed.
        self.payload_text = payload_text
        # How long the task wants the queue of the job to be paused, and why; None if it does not.
        self.queue_pause = queue_pause
        # The keys that the task wants closed.
        self.closings = closings

    @property
    def retry_in(self) -> float | None:
        """Seconds until the next attempt; None if there is no next attempt."""
        if self.permanent or self.claim.attempts >= self.claim.max_attempts:
            return None
        return self.delay if self.delay is not None else usual_backoff(self.claim.attempts)


class Expired(_Ended):
    """The job was not started by the time at which it expired: the row is deleted, and the job never runs."""

    __slots__ = ("expires_at",)

    def __init__(self, claim: Claim, expires_at: float) -> None:
        super().__init__(claim, 0.0)
        # Seconds since 1970.
        self.expires_at = expires_at

    @property
    def moment(self) -> datetime | None:
        """The same as a time, if Python can represent it."""
        return as_time(self.expires_at)


class Cancelled(_Ended):
    """The job was cancelled while this worker held its claim: the row is deleted, and the job is not retried."""

    __slots__ = ("ended", "has_begun", "stop", "task")

    def __init__(
        self,
        claim: Claim,
        duration: float,
        stop: RunStop,
        *,
        task: Task[Any, Any] | None = None,
        has_begun: bool = True,
    ) -> None:
        super().__init__(claim, duration)
        # Who cancelled it, and why.
        self.stop = stop
        # By the monotonic clock.
        self.ended = monotonic()
        self.task = task
        self.has_begun = has_begun


Outcome = Succeeded | Recorded | CompletedAtomically | Failed | Interrupted | Cancelled | Expired
