"""One run of one job: the state that the steps of the executor share."""

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
    from django_graphile_worker.worker.execution.stops.abort import Abort
    from django_graphile_worker.worker.execution.stops.stop_of_run import StopOfRun

_NOT_DECODED: Any = object()
# The function in C that json.loads() calls through three functions in Python, which are skipped here for every job.
# A private interface of json; a test watches it.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class LostAtomicClaimError(LostClaimError):
    """The claim on an atomic job was lost while its task ran: the transaction was rolled back."""


class RunningJob(Frozen):
    """A job that runs at this moment."""

    claim: Claim
    task_identifier: str
    # Seconds since the epoch.
    started_at: float


class JobRun:
    """The claim of a job, its task and its payload. The public ``Job`` value is built on first access only."""

    # Defaults are on the class: most runs never change them, and an assignment in __init__ would cost every job.
    payload: Any = _NOT_DECODED
    # The number of items in an array payload. It is counted before the task runs, as the task may change the list.
    item_count: int | None = None
    # Made at the first use by the task.
    abort: Abort | None = None
    # Whether the end of the run has more to do than most: the task has reported its progress, or the run is to stop.
    is_marked: bool = False
    # Whether the task has reported its progress.
    has_progress: bool = False
    # Set as soon as the task of a marked run has ended: no step of its stop begins after that.
    is_ending: bool = False
    # The stop of the run, once it has begun.
    stopping: StopOfRun | None = None
    # The end of the time limit, by the monotonic clock.
    deadline: float | None = None
    # The result as JSON, if the task keeps its results; "null" for the run of a schedule.
    value_text: str | None = None
    # The ``CoroutineRun`` of an async task that was started without a thread.
    coroutine: Any = None
    _job: Job | None = None

    def __init__(self, claim: Claim, started: float, task: Task[Any, Any] | None = None) -> None:
        self.claim = claim
        self.started = started
        self.task = task

    def decode(self) -> Any:
        """Decode the payload, and return it. Called inside the job's own ``try``, so that bad JSON fails one job."""
        text = self.claim.payload_text
        try:
            payload, end = _scan(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):
            # There is white space around the value, or the text is not JSON.
            payload = payloads.decode(text)
        self.payload = payload
        if type(payload) is list:
            self.item_count = len(payload)
        return payload

    def replace_payload(self, payload: Any) -> None:
        """Use the payload that middleware passes to the task."""
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
        """The job as it was claimed. A payload that cannot be decoded is given as its text."""
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
            # The flags cannot be parsed. That is no reason to fail the job.
            return self.claim._replace(flags_text=None).to_job(**details)
