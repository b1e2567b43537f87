"""One run of one job: the state that the steps of the executor share, and the stop of the run.

The thread that stops a run raises an exception in the thread that runs the job, and cancels its queries. Both must
happen only while the task runs: an exception or a cancelled query that comes later would hit the next job of the
thread. So each of these steps holds a lock, and the thread that runs the job takes the lock for good when its task has
ended.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from django_graphile_worker import payloads
from django_graphile_worker.exceptions import (
    LostClaimError,
    PermanentFailure,
    RetryLater,
    TaskCancelled,
    TaskStopped,
    TaskTimeout,
)
from django_graphile_worker.job_flags import expiry_in
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.outcomes import EndedWithoutThread, RunStop

if TYPE_CHECKING:
    # A circle: the helpers of a run have the run.
    from django_graphile_worker.worker.execution.helpers import Abort

_EXCEPTIONS: dict[str, type[TaskStopped]] = {"timeout": TaskTimeout, "cancelled": TaskCancelled}
_NOT_DECODED: Any = object()
# The function in C that json.loads() calls through three functions in Python, which are skipped here for every job.
# A private interface of json; a test watches it.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class LostAtomicClaimError(LostClaimError):
    """The claim on an atomic job was lost while its task ran: the transaction was rolled back."""


@dataclass(frozen=True, slots=True)
class RunningJob:
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
    stopping: ActiveRunStop | None = None
    # The end of the time limit, by the monotonic clock.
    deadline: float | None = None
    # The result as JSON, if the task keeps its results; "null" for the run of a schedule.
    value_text: str | None = None
    # Tells those who observe runs how the run ended; None if nobody does.
    end_observed: Callable[..., None] | None = None
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
    def expires_at(self) -> float | None:
        """When the job expires, in seconds since 1970: the time of its flag, or of its task; None for never.

        Only the first start counts. A job that failed, or whose worker died, has been started.
        """
        claim, task = self.claim, self.task
        if claim.attempts != 1 or claim.last_error is not None:
            return None
        own = None if claim.flags_text is None else expiry_in(claim.flags_text)
        if own is not None:
            return own
        return None if task is None or task.expires is None else claim.run_at_epoch + task.expires

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


class ActiveRunStop:
    """The stop of one run, shared by the thread that runs the job and the thread that stops it."""

    def __init__(self, stop: RunStop) -> None:
        self.stop = stop
        # Reentrant, so that the thread of the run can take it again after an exception that arrived late.
        self._lock = threading.RLock()
        # Whether the run has ended although its thread has not.
        self.is_without_thread = False
        # Where the task was when the stop began.
        self.stack_text = ""

    @property
    def exception_class(self) -> type[TaskStopped]:
        return _EXCEPTIONS[self.stop.kind]

    @contextmanager
    def step(self) -> Iterator[bool]:
        """Keep the run from ending during the block; yield False if its task has ended. For the thread that stops."""
        is_free = self._lock.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self._lock.release()

    def raise_in(self, thread_id: int) -> None:
        """Raise the exception in a thread, at its next step in Python. Called in a step."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(self.exception_class))

    def leave_task(self) -> None:
        """Wait for the step under way, and drop its exception. Called on the thread of the run, after its task.

        Later steps find that the task has ended. So what follows, such as a commit, is not interrupted.
        """
        with self._lock:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)

    def close(self) -> None:
        """Wait for the step under way, and let no other begin. Called on the thread of the run, after its task.

        The exception of the last step may still arrive while this method runs: then it must be called again.
        """
        # Taken for good.
        self._lock.acquire()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
        if self.is_without_thread:
            raise EndedWithoutThread

    def timeout_error(self, error: BaseException) -> BaseException:
        """Return the error of an attempt that ended with this exception after its deadline.

        A task that reacts to ``helpers.abort`` may decide when it runs again, or that it does not. Every other
        exception, such as the error of a query that was cancelled, is a consequence of the stop.
        """
        if isinstance(error, RetryLater | PermanentFailure):
            return error
        if isinstance(error, TaskTimeout):
            # Python made it without arguments.
            error.args = (self.stop.reason,)
            return error
        timeout = TaskTimeout(self.stop.reason)
        timeout.__cause__ = error
        return timeout

    @property
    def remark(self) -> str:
        """Where the task was at its deadline, and whether it stopped."""
        where = f"At the deadline the task was here:\n{self.stack_text}" if self.stack_text else ""
        left = "It did not stop: the run ended without its thread." if self.is_without_thread else ""
        return "\n".join(filter(None, (left, where)))
