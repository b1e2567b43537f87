"""One run of one job: what the steps of the executor pass on to each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from django_graphile_worker import payloads
from django_graphile_worker.exceptions import LostClaimError
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim

if TYPE_CHECKING:
    from django_graphile_worker.worker.execution.task_helpers import Abort

_NOT_DECODED: Any = object()
# What json.loads does in the end, without its three layers above.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class LostAtomicClaimError(LostClaimError):
    """Somebody else has the job now: everything was rolled back."""


class RunningJob(Frozen):
    """A job that runs right now."""

    claim: Claim
    task_identifier: str
    # Seconds since the epoch.
    started_at: float


class JobRun:
    """The job in hand. The Job value that people see is only made when somebody looks."""

    # On the class, as most runs never change them, and each would cost every job.
    task: Task[Any, Any] | None = None
    payload: Any = _NOT_DECODED
    # How many items an array payload has; the task may change the list itself.
    item_count: int | None = None
    # Made when the task asks for it.
    abort: Abort | None = None
    _job: Job | None = None

    def __init__(self, claim: Claim, started: float) -> None:
        self.claim = claim
        self.started = started

    def decode(self) -> Any:
        """Decode the payload; raises what it raises, inside the job's own try."""
        text = self.claim.payload_text
        try:
            payload, end = _scan(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):
            # White space around it, or no JSON at all.
            payload = payloads.decode(text)
        self.payload = payload
        if type(payload) is list:
            self.item_count = len(payload)
        return payload

    def rewrite(self, payload: Any) -> None:
        """Middleware gave the task another payload."""
        self.payload = payload
        self.item_count = len(payload) if isinstance(payload, list) else None

    @property
    def duration(self) -> float:
        return monotonic() - self.started

    @property
    def identifier(self) -> str:
        return self.task.identifier if self.task is not None else f"(task {self.claim.task_id})"

    @property
    def is_atomic(self) -> bool:
        return self.task is not None and self.task.atomic

    @property
    def job(self) -> Job:
        """The job as it was claimed. A payload that cannot be decoded comes as its text."""
        if self._job is None:
            self._job = self._build_job()
        return self._job

    def to_running_job(self) -> RunningJob:
        return RunningJob(claim=self.claim, task_identifier=self.identifier, started_at=time() - self.duration)

    def _build_job(self) -> Job:
        payload = self.payload
        if payload is _NOT_DECODED:
            payload = payloads.decode_leniently(self.claim.payload_text)
        details: dict[str, Any] = {
            "task_identifier": self.identifier,
            "payload": payload,
            "locked_at_epoch": time() - self.duration,
        }
        try:
            return self.claim.to_job(**details)
        except (ValueError, TypeError, RecursionError):
            # Flags that nobody can read are not worth the job.
            return self.claim._replace(flags_text=None).to_job(**details)
