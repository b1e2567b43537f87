"""Jobs as frozen values; without Django and psycopg."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.job_flags import as_time, headers_in, own_expiry
from django_graphile_worker.job_options import (
    OPTIONS,
    DefaultOptions,
    Headers,
    JobKeyMode,
    JobOptions,
    SpecOptions,
    Unique,
    known_identifier,
)
from django_graphile_worker.text import JOB_OPTIONS, did_you_mean

KEY_AND_UNIQUE = "A job has either a job_key or unique. A key of its own: unique='...'."
# A job that must not be retried has ``attempts = max_attempts`` in the database, as in graphile-worker, however often
# it ran. The number of its last attempt is therefore written into ``last_error``, by the worker or by the operator
# that failed the job.
_FINAL_REMARK = re.compile(r"^Not tried again after attempt ([0-9]{1,5}) of [0-9]{1,5}\.$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Job:
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
    def headers(self) -> dict[str, Any]:
        """What was added beside the payload: ``add_job(..., headers={...})``. It is stored as a flag of the job."""
        return headers_in(self.flags)

    @property
    def existed(self) -> bool:
        """Whether ``add_job()`` added nothing and returned this job, which was there: see ``unique``."""
        return bool(vars(self).get("_existed"))

    def as_existing(self) -> Self:
        """Return the job as one that was there before."""
        return self.of_checked_values(vars(self) | {"_existed": True})

    @classmethod
    def of_checked_values(cls, values: dict[str, Any]) -> Self:
        """Return a job that owns the dict, in a quarter of the constructor's time.

        The dict has every field, but for a payload that is decoded later its JSON as ``_json``.
        """
        job = object.__new__(cls)
        object.__setattr__(job, "__dict__", values)
        return job

    # Hidden from type checkers, which would accept every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Decode the payload of an added job when it is first read: most callers read only the id."""
            values = vars(self)
            if name != "payload" or "_json" not in values:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return values.setdefault("payload", json.loads(values["_json"]))

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __repr__(self) -> str:
        # Messages and logs show it, so it has neither the payload nor the last error: both may have secrets.
        return f"<{type(self).__name__} {self.id}: {self.task_identifier}>"


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


@dataclass(frozen=True, init=False)
class JobDefaults:
    """The options of a task's jobs, which the arguments of a call override."""

    queue_name: str | None = None
    max_attempts: int | None = None
    job_key: str | Callable[[Any], str | None] | None = None
    job_key_mode: JobKeyMode | None = None
    priority: int | None = None
    flags: tuple[str, ...] | None = None
    unique: Unique | None = None

    def __init__(self, **options: Unpack[DefaultOptions]) -> None:
        for name, value in options.items():
            # The key that a function returns is checked with each job.
            is_function = name == "job_key" and callable(value)
            object.__setattr__(self, name, value if is_function else OPTIONS[name].check(value))
        if self.unique is not None and self.job_key is not None:
            raise InvalidJobError(KEY_AND_UNIQUE)

    def job_key_for(self, payload: Any) -> str | None:
        return self.job_key(payload) if callable(self.job_key) else self.job_key

    def options_for(self, payload: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a job with this payload: those that are given, and the defaults of all others."""
        options = vars(self) | {name: value for name, value in given.items() if value is not None}
        if callable(options.get("job_key")):
            options["job_key"] = self.job_key_for(payload)
        return options


class TaskLike(Protocol):
    """The part of a registered task that this module uses: its identifier, and the defaults of its jobs."""

    @property
    def identifier(self) -> str: ...

    @property
    def defaults(self) -> JobDefaults: ...


@dataclass(frozen=True, init=False)
class JobSpec:
    """A job to be added. If ``identifier`` is a task, the job gets the task's defaults."""

    identifier: str
    payload: Any = None
    queue_name: str | None = None
    run_at: datetime | timedelta | None = None
    max_attempts: int | None = None
    job_key: str | None = None
    job_key_mode: JobKeyMode | None = None
    priority: int | None = None
    flags: tuple[str, ...] | None = None
    expires: datetime | timedelta | bool | None = None
    unique: Unique | None = None
    headers: Headers | None = None

    def __init__(self, identifier: str | TaskLike, payload: Any = None, **options: Unpack[SpecOptions]) -> None:
        given: dict[str, Any] = {**options}
        if not isinstance(identifier, str):
            defaults, identifier = _defaults_of(identifier), identifier.identifier
            given = defaults.options_for(payload, given)
        # A million specs may be made in a row. What is left out stays the value of the class, which saves time and
        # memory.
        set_value = object.__setattr__
        set_value(self, "identifier", known_identifier(identifier))
        set_value(self, "payload", payload)
        for name, value in given.items():
            option = OPTIONS.get(name)
            if option is None:
                raise unknown_option(name)
            if value is not None:
                set_value(self, name, option.check(value))
        if self.unique is not None:
            if self.job_key is not None:
                raise InvalidJobError(KEY_AND_UNIQUE)
            set_value(self, "unique", self.unique.for_payload(payload))

    def with_headers(self, headers: Headers) -> JobSpec:
        """Return the spec with more headers; those that it has under the same names are replaced."""
        return replace(self, headers={**(self.headers or {}), **headers})


def unknown_option(name: str) -> InvalidTypeError:
    """Return the error for an unknown option, with the option that is probably meant."""
    if name in ("using", "installation"):
        return InvalidTypeError(f"JobSpec: {name!r} is no option of a job. Pass it to add_jobs(specs, {name}=...).")
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


def usual_backoff(attempts: int) -> float:
    """Return the seconds until the next attempt of a job that has failed so often, as ``_private_backoff`` does."""
    return math.exp(min(attempts, 10))


def final_remark(attempts: int, max_attempts: int) -> str:
    """Return the line that ``last_error`` gets; empty if all attempts were used."""
    return f"Not tried again after attempt {attempts} of {max_attempts}." if attempts < max_attempts else ""


def was_given_up(last_error: str | None) -> bool:
    """Return whether ``last_error`` says that the job must not be retried although attempts were left."""
    return bool(last_error and _FINAL_REMARK.search(last_error))


def attempts_made(attempts: int, max_attempts: int, last_error: str | None) -> int:
    """Return the number of attempts that a job has really had."""
    if attempts < max_attempts or not last_error:
        return attempts
    # A job that was retried may have an earlier remark.
    found = _FINAL_REMARK.findall(last_error)
    return int(found[-1]) if found else attempts
