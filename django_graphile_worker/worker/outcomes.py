"""How a run ended: what the executor tells the releaser."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.claims import Claim


class CancelledByWorker(BaseException):
    """Raised where the worker, and not the task, cancelled a coroutine: the grace period is over."""


class _Ended:
    """A run that is over. There is one for every job, so it is made with as little as Python can."""

    __slots__ = ("claim", "duration")

    def __init__(self, claim: Claim, duration: float) -> None:
        self.claim = claim
        self.duration = duration

    def __repr__(self) -> str:
        return f"<{type(self).__name__} #{self.claim.id} after {self.duration:.3f} s>"


class _Done(_Ended):
    """A run that came to its end as the task wished."""

    __slots__ = ("result",)

    def __init__(self, claim: Claim, duration: float, result: Any = None) -> None:
        # Written out, and not left to the parent: this one is made for nearly every job.
        self.claim = claim
        self.duration = duration
        # What the task returned. It is stored nowhere, and gone with the outcome.
        self.result = result


class Succeeded(_Done):
    """The job is done and its row must go."""

    __slots__ = ()


class CompletedAtomically(_Done):
    """The job's row went in the task's own transaction; only its queue is left to free."""

    __slots__ = ()


class Interrupted(_Ended):
    """The worker's own doing: the job goes back with its attempt."""

    __slots__ = ("has_begun", "payload_text")

    def __init__(
        self, claim: Claim, duration: float, payload_text: str | None = None, *, has_begun: bool = True
    ) -> None:
        super().__init__(claim, duration)
        self.has_begun = has_begun
        # What is left of an array payload, when some of it is done.
        self.payload_text = payload_text


class Failed(_Ended):
    """The attempt failed: keep the error, plan the next one."""

    __slots__ = ("delay", "error", "payload_text", "permanent")

    def __init__(
        self,
        claim: Claim,
        duration: float,
        error: str,
        *,
        delay: float | None = None,
        permanent: bool = False,
        payload_text: str | None = None,
    ) -> None:
        super().__init__(claim, duration)
        self.error = error
        # Seconds until the next attempt; None for the usual back-off.
        self.delay = delay
        self.permanent = permanent
        # What is left of an array payload: the items that failed.
        self.payload_text = payload_text


Outcome = Succeeded | CompletedAtomically | Failed | Interrupted
