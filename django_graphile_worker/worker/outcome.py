"""How a run ended: what the executor tells the releaser."""

from __future__ import annotations

from typing import NamedTuple

from django_graphile_worker.sql.claims import Claim


class Succeeded(NamedTuple):
    """The job is done and its row must go."""

    claim: Claim
    duration: float


class CompletedAtomically(NamedTuple):
    """The job's row went in the task's own transaction; only its queue is left to free."""

    claim: Claim
    duration: float


class Failed(NamedTuple):
    """The attempt failed: keep the error, plan the next one."""

    claim: Claim
    duration: float
    error: str
    # Seconds until the next attempt; None for the usual back-off.
    delay: float | None = None
    permanent: bool = False
    # What is left of an array payload: the items that failed.
    payload_text: str | None = None


class Interrupted(NamedTuple):
    """The worker's own doing: the job goes back with its attempt."""

    claim: Claim
    duration: float
    # What is left of an array payload, when some of it is done.
    payload_text: str | None = None


Outcome = Succeeded | CompletedAtomically | Failed | Interrupted
