"""Jobs as frozen values; without Django and psycopg."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Never, Protocol, Self, TypedDict

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.expiry import Expires, as_time, own_expiry, valid_expires
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.job_options import (
    JobKeyMode,
    JobKeyModeOption,
    Unique,
    known_identifier,
    valid_flags,
    valid_job_key,
    valid_job_key_mode,
    valid_max_attempts,
    valid_priority,
    valid_queue_name,
    valid_run_at,
    valid_unique,
)

KEY_AND_UNIQUE = "A job has either a job_key or unique. A key of its own: unique='...'."


class Job(Frozen):
    """A job as it was when it was read from the database."""

    id: int
    task_identifier: str
    payload: Any
    queue_name: str | None
    priority: int
    run_at: datetime
    attempts: int
    max_attempts: int
    last_error: str | None
    created_at: datetime
    updated_at: datetime
    key: str | None
    locked_at: datetime | None
    locked_by: str | None
    revision: int
    flags: frozenset[str]

    @property
    def expires_at(self) -> datetime | None:
        """The time by which the job must have been started, if it was added with ``expires``; a task may have its own.

        It is stored as a flag of the job.
        """
        return as_time(own_expiry(self.flags))

    @property
    def existed(self) -> bool:
        """Whether ``add_job()`` added nothing and returned this job, which was there: see ``unique``."""
        return bool(vars(self).get("_existed"))

    def as_existing(self) -> Self:
        """Return the job as one that was there before."""
        return self.of_checked_values(vars(self) | {"_existed": True})

    # Hidden from type checkers, which would accept every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Decode the payload of an added job when it is first read: most callers read only the id."""
            values = vars(self)
            if name != "payload" or "_json" not in values:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return values.setdefault("payload", json.loads(values["_json"]))

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._in_order}

    def __repr__(self) -> str:
        # Messages and logs show it, so it has neither the payload nor the last error: both may have secrets.
        return f"<{type(self).__name__} {self.id}: {self.task_identifier}>"


class JobOptions(TypedDict, total=False):
    """The keyword arguments of ``add_job()``."""

    queue_name: str | None
    run_at: datetime | timedelta | None
    max_attempts: int | None
    job_key: str | None
    job_key_mode: JobKeyModeOption | None
    priority: int | None
    flags: Iterable[str] | None
    expires: Expires | None
    unique: Unique | str | bool | None
    using: str | None
    installation: str | None


class RemovedJob(Job):
    """A job that ``remove_job()`` has deleted, or has only marked because it was running."""

    @property
    def was_running(self) -> bool:
        """Whether a worker was running the job: then it finishes, without its key, and is not retried.

        If False, the row is deleted, and the job will not run.
        """
        return self.locked_at is not None

    def __eq__(self, other: object) -> bool:
        """Return True also for a ``Job`` with the same values."""
        return isinstance(other, Job) and self.__getstate__() == other.__getstate__()

    __hash__ = Job.__hash__


class JobDefaults(Frozen):
    """The defaults of a task's jobs, which the arguments of a call override."""

    queue_name: str | None
    max_attempts: int | None
    job_key: str | Callable[[Any], str | None] | None
    job_key_mode: JobKeyMode | None
    priority: int | None
    flags: tuple[str, ...] | None
    unique: Unique | None

    def __init__(
        self,
        *,
        queue_name: str | None = None,
        max_attempts: int | None = None,
        job_key: str | Callable[[Any], str | None] | None = None,
        job_key_mode: JobKeyModeOption | None = None,
        priority: int | None = None,
        flags: Iterable[str] | None = None,
        unique: Unique | str | bool | None = None,
    ) -> None:
        super().__init__(
            queue_name=valid_queue_name(queue_name),
            max_attempts=valid_max_attempts(max_attempts),
            job_key=job_key if callable(job_key) else valid_job_key(job_key),
            job_key_mode=valid_job_key_mode(job_key_mode),
            priority=valid_priority(priority),
            flags=valid_flags(flags),
            unique=valid_unique(unique),
        )
        if self.unique is not None and self.job_key is not None:
            raise InvalidJobError(KEY_AND_UNIQUE)

    def job_key_for(self, payload: Any) -> str | None:
        return self.job_key(payload) if callable(self.job_key) else self.job_key


class TaskLike(Protocol):
    """The part of a registered task that this module uses: its identifier, and the defaults of its jobs."""

    @property
    def identifier(self) -> str: ...

    @property
    def defaults(self) -> JobDefaults: ...


class JobSpec(Frozen):
    """A job to be added. If ``identifier`` is a task, the job gets the task's defaults."""

    identifier: str
    payload: Any
    queue_name: str | None = None
    run_at: datetime | timedelta | None = None
    max_attempts: int | None = None
    job_key: str | None = None
    job_key_mode: JobKeyMode | None = None
    priority: int | None = None
    flags: tuple[str, ...] | None = None
    expires: datetime | timedelta | bool | None = None
    unique: Unique | None = None

    def __init__(
        self,
        identifier: str | TaskLike,
        payload: Any = None,
        *,
        queue_name: str | None = None,
        run_at: datetime | timedelta | None = None,
        max_attempts: int | None = None,
        job_key: str | None = None,
        job_key_mode: JobKeyModeOption | None = None,
        priority: int | None = None,
        flags: Iterable[str] | None = None,
        expires: Expires | None = None,
        unique: Unique | str | bool | None = None,
        **mistaken: Never,
    ) -> None:
        if mistaken:
            raise unknown_option(next(iter(mistaken)))
        if not isinstance(identifier, str):
            defaults = _defaults_of(identifier)
            identifier = identifier.identifier
            queue_name = defaults.queue_name if queue_name is None else queue_name
            max_attempts = defaults.max_attempts if max_attempts is None else max_attempts
            job_key = defaults.job_key_for(payload) if job_key is None else job_key
            job_key_mode = defaults.job_key_mode if job_key_mode is None else job_key_mode
            priority = defaults.priority if priority is None else priority
            flags = defaults.flags if flags is None else flags
            unique = defaults.unique if unique is None else unique
        # A million specs may be made in a row: no call for an option that is left out, and not Frozen's constructor. A
        # spec without options gets no dict, which halves the work of the garbage collector.
        object.__setattr__(self, "identifier", known_identifier(identifier))
        object.__setattr__(self, "payload", payload)
        if not (queue_name is None and priority is None and flags is None and max_attempts is None):
            vars(self).update(
                queue_name=valid_queue_name(queue_name),
                priority=valid_priority(priority),
                flags=valid_flags(flags),
                max_attempts=valid_max_attempts(max_attempts),
            )
        if not (run_at is None and expires is None and job_key is None and job_key_mode is None):
            vars(self).update(
                run_at=valid_run_at(run_at),
                expires=valid_expires(expires),
                job_key=valid_job_key(job_key),
                job_key_mode=valid_job_key_mode(job_key_mode),
            )
        if unique is not None and (option := valid_unique(unique)):
            if job_key is not None:
                raise InvalidJobError(KEY_AND_UNIQUE)
            vars(self)["unique"] = option.for_payload(payload)


def unknown_option(name: str) -> InvalidTypeError:
    """Return the error for an unknown option, with the option that is probably meant."""
    # Late import: only a mistake needs suggestions.
    from django_graphile_worker.suggestions import JOB_OPTIONS, did_you_mean

    if name in ("using", "installation"):
        return InvalidTypeError(
            f"JobSpec: expected the options of a job, got {name!r}. Pass it to add_jobs(specs, {name}=...)."
        )
    options = list(JobOptions.__annotations__)
    way_out = did_you_mean(name, options, JOB_OPTIONS)
    way_out = way_out or f'Put it into the payload: {{"{name}": ...}}. Options: {", ".join(options)}.'
    return InvalidTypeError(f"add_job has no option {name!r}. {way_out}")


def too_many_arguments() -> InvalidTypeError:
    """Return the error for arguments after the payload."""
    return InvalidTypeError(
        'add_job takes one payload. Put all arguments into it: add_job(task, {"order": 1, "copy": True}).'
    )


def _defaults_of(task: object) -> JobDefaults:
    # Not isinstance(): for a protocol it takes as long as the rest of the constructor, several times over.
    defaults = getattr(task, "defaults", None)
    if not isinstance(defaults, JobDefaults) or not hasattr(task, "identifier"):
        # The value itself may be a payload.
        got = repr(task) if callable(task) else type(task).__name__
        raise InvalidTypeError(
            f"identifier: expected a task identifier (str) or a function decorated with @task, got {got}."
        )
    return defaults
