"""The exceptions of this package.

All have one base class, so that ``except GraphileWorkerError`` catches them, except ``TaskStopped`` and its subclasses,
which stop a task. Each message says what was expected, what was found, and how to correct it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured


class GraphileWorkerError(Exception):
    """The base of every error of django-graphile-worker."""

    # The exit code of a worker that cannot start or continue for this reason.
    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingMistake:
    """A mistake in ``settings.GRAPHILE_WORKER``: the key, and what is wrong with its value."""

    key: str
    message: str
    is_unknown_key: bool = False

    def __str__(self) -> str:
        return self.message


class ConfigurationError(GraphileWorkerError, ImproperlyConfigured):
    """``settings.GRAPHILE_WORKER`` (or a database it names) cannot be used."""

    def __init__(self, message: str = "", *, mistakes: Sequence[SettingMistake] = ()) -> None:
        self.mistakes: tuple[SettingMistake, ...] = tuple(mistakes)
        super().__init__(message or "\n".join(str(mistake) for mistake in self.mistakes))


class InvalidTypeError(GraphileWorkerError, TypeError):
    """A value of the wrong type was given."""


class InvalidJobError(GraphileWorkerError, ValueError):
    """A job was given a value that no job can have."""


class PayloadError(InvalidJobError):
    """A payload cannot be stored as JSON and read back, or does not fit its task; ``path`` is the affected part."""

    # True if the payload of a claimed job does not fit the type that its task takes: no other attempt can succeed.
    is_misfit = False
    # If several parts do not fit: the path of each, and what is wrong with it.
    problems: tuple[tuple[str, str], ...] = ()

    def __init__(self, message: str, *, path: str = "$") -> None:
        self.path = path
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0],), vars(self)


class CrontabError(GraphileWorkerError, ValueError):
    """A crontab has mistakes; ``mistakes`` lists all of them."""

    def __init__(self, message: str = "", *, mistakes: Sequence[Any] = ()) -> None:
        self.mistakes: tuple[Any, ...] = tuple(mistakes)
        super().__init__(message or "\n".join(str(mistake) for mistake in self.mistakes))


class UnknownTaskError(GraphileWorkerError, LookupError):
    """No task is registered under this identifier."""


class UnknownQueueError(GraphileWorkerError, LookupError):
    """No queue has this name."""


class SchemaError(GraphileWorkerError):
    """The worker schema is missing, cannot be adopted, is locked, or is hidden from this role."""


class BreakingMigrationError(SchemaError):
    """A newer graphile-worker, or a later release of this package, has changed the schema in a breaking way."""

    # graphile-worker exits with the same code.
    exit_code = 57


class LostClaimError(GraphileWorkerError):
    """The job is no longer claimed by this worker, so its result must not be written."""


class WorkerDiedError(GraphileWorkerError):
    """The workers of a job died too often while it ran; sent with ``job_permanently_failed``, never raised."""


class UnknownResultError(GraphileWorkerError, LookupError):
    """There is neither a job with this id nor a result of it: it never existed, or nothing of it is kept."""


class ResultNotReadyError(GraphileWorkerError, ValueError):
    """The job has not ended, so it has no value yet."""


class JobFailedError(GraphileWorkerError):
    """The job failed permanently or was removed, so it has no value."""


class JobCancelledError(JobFailedError):
    """The job was cancelled, so it has no value; also named in its result."""


class JobExpiredError(JobFailedError):
    """The job was not started by the time at which it expired, so it has no value; also named in its result."""


class ResultTimeoutError(GraphileWorkerError, TimeoutError):
    """The job did not end in the time that ``wait_for_result()`` was given."""


class UncommittedJobError(GraphileWorkerError, RuntimeError):
    """``wait_for_result()`` was called in the transaction that added the job: no worker sees the job before its end."""


class FailedByOperatorError(GraphileWorkerError):
    """An operator failed a job permanently; named in the result of the job, never raised."""


class LeftoverStateError(GraphileWorkerError):
    """A task returned and left a transaction open, or its session with another role."""


class RetryLater(GraphileWorkerError):  # noqa: N818 - it names an outcome, not an error
    """Raised by a task: fail this attempt, and run the job again after ``delay``.

    With ``pause_queue`` the queue of the job is paused until then: none of its jobs starts before.
    """

    def __init__(self, delay: timedelta | float, reason: str = "", *, pause_queue: bool = False) -> None:
        self.delay = to_delay(delay, name=type(self).__name__, expected="a timedelta or a number of seconds")
        self.reason = reason
        self.pause_queue = pause_queue
        super().__init__(reason or f"retry in {self.delay}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay, self.reason), vars(self)


class LimitedUntil(RetryLater):
    """Raised by a task: start no job with the same keys for ``delay``, and run this job again then.

    ``delay`` is a timedelta, a number of seconds (the Retry-After of a service), or an aware datetime. ``limit`` is the
    name of the limit whose key is closed; without it, every key of the job is closed.
    """

    def __init__(self, delay: timedelta | float | datetime, reason: str = "", *, limit: str | None = None) -> None:
        if limit is not None and not isinstance(limit, str):
            raise InvalidTypeError(f"LimitedUntil: expected the name of a limit, got {limit!r}.")
        self.limit = limit
        super().__init__(_until(delay) if isinstance(delay, datetime) else delay, reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay, self.reason), vars(self)


def _until(time: datetime) -> timedelta:
    if time.tzinfo is None:
        raise InvalidJobError(f"LimitedUntil: expected an aware datetime, got {time!r}, which has no time zone.")
    return max(time - datetime.now(UTC), timedelta(0))


class PermanentFailure(GraphileWorkerError):  # noqa: N818 - it names an outcome, not an error
    """Raised by a task: fail the job permanently, however many attempts are left."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class TaskStopped(BaseException):
    """The base of the exceptions that the worker raises in a task to stop it.

    They are no ``Exception``: a task that continues after every error, with ``except Exception``, must stop as well.
    """


class TaskTimeout(TaskStopped):
    """Raised in a task by the worker: the task runs longer than its time limit. The attempt counts as failed."""


class TaskCancelled(TaskStopped):
    """Raised in a task by the worker: the job was cancelled. It is not retried."""


class ResultError(PermanentFailure, TypeError):
    """The result of a task that keeps its results cannot be stored as JSON; another attempt would repeat the work."""


class BatchFailure(GraphileWorkerError):  # noqa: N818 - like PermanentFailure, it names an outcome
    """Some items of an array payload failed; ``failures`` maps the index of each to its exception."""

    def __init__(self, failures: Mapping[int, BaseException], count: int) -> None:
        self.failures = dict(failures)
        # The number of all items in the payload.
        self.count = count
        super().__init__(self.failures, count)

    @property
    def share(self) -> str:
        """How many of the items failed, as text."""
        return f"{len(self.failures)} of {self.count} items failed"

    def __str__(self) -> str:
        causes = [f"[{index}] {_one_line(error)}" for index, error in list(self.failures.items())[:_MAX_CAUSES]]
        more = len(self.failures) - len(causes)
        return f"{self.share}: {'; '.join(causes)}{f'; and {more} more' if more else ''}"


_MAX_CAUSES = 3
_MAX_CAUSE_LENGTH = 200


def _one_line(error: BaseException) -> str:
    """Return ``ValueError: no such order``; the methods of an exception may raise anything."""
    try:
        text = " ".join(str(error)[:_MAX_CAUSE_LENGTH].split())
    except BaseException:
        text = "<its text could not be read>"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def to_delay(value: object, *, name: str, expected: str) -> timedelta:
    """Return a timedelta or a number of seconds as a timedelta; raise for any other value, and for a negative delay."""
    if isinstance(value, timedelta):
        delay = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            delay = timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise InvalidJobError(f"{name}: expected a delay in seconds, got {value!r}.") from None
    else:
        raise InvalidTypeError(f"{name}: expected {expected}, got {value!r}.")
    if delay < timedelta(0):
        raise InvalidJobError(f"{name}: expected a delay of zero or more, got {value!r}.")
    return delay


class ReadOnlyModelError(GraphileWorkerError, TypeError):
    """Code tried to write to a model of the worker schema; the message names the function to use."""
