"""Every error this package raises on purpose.

One base class, so that ``except GraphileWorkerError`` catches them all. Each
message says what was expected, what came instead, and the way out.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from django_graphile_worker.values import Value

if TYPE_CHECKING:
    from collections.abc import Sequence


class GraphileWorkerError(Exception):
    """The base of every error of django-graphile-worker."""

    # Of a worker that cannot start or go on for this reason.
    exit_code = 1


class SettingMistake(Value):
    """One mistake in ``settings.GRAPHILE_WORKER``: the key, and what is wrong with it."""

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
    """A job was described with a value that no job can have."""


class PayloadError(InvalidJobError):
    """A payload cannot be stored as JSON and read back; ``path`` says which part of it."""

    def __init__(self, message: str, *, path: str = "$") -> None:
        self.path = path
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0],), {"path": self.path}


class CrontabError(GraphileWorkerError, ValueError):
    """A crontab cannot be read; ``mistakes`` lists everything that is wrong with it."""

    def __init__(self, message: str = "", *, mistakes: Sequence[Any] = ()) -> None:
        self.mistakes: tuple[Any, ...] = tuple(mistakes)
        super().__init__(message or "\n".join(str(mistake) for mistake in self.mistakes))


class UnknownTaskError(GraphileWorkerError, LookupError):
    """No task is registered under this identifier."""


class SchemaError(GraphileWorkerError):
    """The worker schema is missing, cannot be adopted, is locked, or hidden from this role."""


class BreakingMigrationError(SchemaError):
    """A newer graphile-worker has changed the schema in a way that this version does not know."""

    # As graphile-worker itself ends then.
    exit_code = 57


class LostClaimError(GraphileWorkerError):
    """The job is no longer claimed by this worker, so its result must not be written."""


class WorkerDiedError(GraphileWorkerError):
    """A job's worker died under it once too often; told with ``job_permanently_failed``, never raised."""


class LeftoverStateError(GraphileWorkerError):
    """A task returned with a transaction or a changed session left open."""


class RetryLater(GraphileWorkerError):  # noqa: N818 - it names an outcome, not a mistake
    """Raised by a task: fail this attempt, and run the job again after ``delay``."""

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        self.delay = _to_timedelta(delay)
        self.reason = reason
        super().__init__(reason or f"retry in {self.delay}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay, self.reason)


class PermanentFailure(GraphileWorkerError):  # noqa: N818 - it names an outcome, not a mistake
    """Raised by a task: fail the job for good, however many attempts are left."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


def _to_timedelta(delay: object) -> timedelta:
    if isinstance(delay, timedelta):
        duration = delay
    elif isinstance(delay, int | float) and not isinstance(delay, bool):
        try:
            duration = timedelta(seconds=delay)
        except (OverflowError, ValueError):
            raise InvalidJobError(f"RetryLater: expected a delay in seconds, got {delay!r}.") from None
    else:
        raise InvalidTypeError(f"RetryLater: expected a timedelta or a number of seconds, got {delay!r}.")
    if duration < timedelta(0):
        raise InvalidJobError(f"RetryLater: expected a delay of zero or more, got {delay!r}.")
    return duration


class ReadOnlyModelError(GraphileWorkerError, TypeError):
    """A model over the worker schema was written to; the message names the function to use."""
