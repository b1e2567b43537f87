"""Jobs as frozen values, and the checks of their attributes; without Django and psycopg."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Never, Protocol, TypedDict, runtime_checkable

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.frozen import Frozen

MAX_IDENTIFIER_LENGTH = 128
MAX_QUEUE_NAME_LENGTH = 128
MAX_JOB_KEY_LENGTH = 512
SMALLEST_PRIORITY, LARGEST_PRIORITY = -32_768, 32_767
LARGEST_MAX_ATTEMPTS = 32_767


class JobKeyMode(StrEnum):
    """What adding a job does if a job with the same key already waits."""

    REPLACE = "replace"
    PRESERVE_RUN_AT = "preserve_run_at"
    UNSAFE_DEDUPE = "unsafe_dedupe"


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


class JobOptions(TypedDict, total=False):
    """The keyword arguments of ``add_job()``."""

    queue_name: str | None
    run_at: datetime | timedelta | None
    max_attempts: int | None
    job_key: str | None
    job_key_mode: JobKeyMode | str | None
    priority: int | None
    flags: Iterable[str] | None
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

    def __init__(
        self,
        *,
        queue_name: str | None = None,
        max_attempts: int | None = None,
        job_key: str | Callable[[Any], str | None] | None = None,
        job_key_mode: JobKeyMode | str | None = None,
        priority: int | None = None,
        flags: Iterable[str] | None = None,
    ) -> None:
        super().__init__(
            queue_name=valid_queue_name(queue_name),
            max_attempts=valid_max_attempts(max_attempts),
            job_key=job_key if callable(job_key) else valid_job_key(job_key),
            job_key_mode=valid_job_key_mode(job_key_mode),
            priority=valid_priority(priority),
            flags=valid_flags(flags),
        )

    def job_key_for(self, payload: Any) -> str | None:
        return self.job_key(payload) if callable(self.job_key) else self.job_key


@runtime_checkable
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
    queue_name: str | None
    run_at: datetime | timedelta | None
    max_attempts: int | None
    job_key: str | None
    job_key_mode: JobKeyMode | None
    priority: int | None
    flags: tuple[str, ...] | None

    def __init__(
        self,
        identifier: str | TaskLike,
        payload: Any = None,
        *,
        queue_name: str | None = None,
        run_at: datetime | timedelta | None = None,
        max_attempts: int | None = None,
        job_key: str | None = None,
        job_key_mode: JobKeyMode | str | None = None,
        priority: int | None = None,
        flags: Iterable[str] | None = None,
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
        # A million specs may be made in a row: no call for an option that is left out, and not Frozen's constructor.
        values = {
            "identifier": _known_identifier(identifier),
            "payload": payload,
            "queue_name": None if queue_name is None else valid_queue_name(queue_name),
            "run_at": None if run_at is None else valid_run_at(run_at),
            "max_attempts": None if max_attempts is None else valid_max_attempts(max_attempts),
            "job_key": None if job_key is None else valid_job_key(job_key),
            "job_key_mode": None if job_key_mode is None else valid_job_key_mode(job_key_mode),
            "priority": None if priority is None else valid_priority(priority),
            "flags": None if flags is None else valid_flags(flags),
        }
        object.__setattr__(self, "__dict__", values)


def unknown_option(name: str) -> InvalidTypeError:
    """Return the error for an unknown option, with the option that is probably meant."""
    # Late import: only a mistake needs suggestions.
    from django_graphile_worker.suggestions import JOB_OPTIONS, did_you_mean

    if name in ("using", "installation"):
        return InvalidTypeError(
            f"JobSpec: expected the options of a job, got {name!r}. Pass it to add_jobs(specs, {name}=...)."
        )
    options = list(JobOptions.__annotations__)
    way_out = did_you_mean(name, options, JOB_OPTIONS) or f"Known options: {', '.join(options)}."
    return InvalidTypeError(f"add_job: expected a known option, got {name!r}. {way_out}")


def _defaults_of(task: object) -> JobDefaults:
    if not isinstance(task, TaskLike):
        raise InvalidTypeError(
            f"identifier: expected a task identifier (str) or a function decorated with @task, got {task!r}."
        )
    return task.defaults


def valid_identifier(value: object) -> str:
    return _text("identifier", value, MAX_IDENTIFIER_LENGTH)


# Most specs repeat a few identifiers.
_known_identifier = lru_cache(maxsize=256)(valid_identifier)


def valid_queue_name(value: object) -> str | None:
    return None if value is None else _text("queue_name", value, MAX_QUEUE_NAME_LENGTH)


def valid_job_key(value: object) -> str | None:
    return None if value is None else _text("job_key", value, MAX_JOB_KEY_LENGTH)


def valid_priority(value: object) -> int | None:
    if value is None:
        return None
    return whole_number("priority", value, SMALLEST_PRIORITY, LARGEST_PRIORITY)


def valid_max_attempts(value: object) -> int | None:
    if value is None:
        return None
    return whole_number("max_attempts", value, 1, LARGEST_MAX_ATTEMPTS)


def valid_job_key_mode(value: object) -> JobKeyMode | None:
    if value is None or type(value) is JobKeyMode:
        return value
    if isinstance(value, str) and value in _JOB_KEY_MODES:
        return JobKeyMode(value)
    expected = "job_key_mode: expected 'replace', 'preserve_run_at' or 'unsafe_dedupe'"
    if isinstance(value, str):
        raise InvalidJobError(f"{expected}, got {value!r}.")
    raise InvalidTypeError(f"{expected}, got {value!r} ({type(value).__name__}).")


def valid_run_at(value: object) -> datetime | timedelta | None:
    if value is None:
        return None
    if not isinstance(value, datetime | timedelta):
        raise InvalidTypeError(
            "run_at: expected an aware datetime, or a timedelta from the database's now, "
            f"got {value!r} ({type(value).__name__})."
        )
    try:
        year = (datetime.now(UTC) + value if isinstance(value, timedelta) else value).year
    except OverflowError:
        year = 0
    # The margin of a year covers differences between the clocks and time zones of this process and of the database.
    if not MINYEAR < year < MAXYEAR:
        raise InvalidJobError(f"run_at: expected a time in the years 2 to 9998, got {value!r}.")
    return value


def valid_flags(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidTypeError(f"flags: expected a list or set of strings, got {value!r} ({type(value).__name__}).")
    return tuple(dict.fromkeys(_text("flags", flag, None) for flag in value))


def whole_number(name: str, value: object, smallest: int, largest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTypeError(
            f"{name}: expected a whole number from {smallest} to {largest}, got {value!r} ({type(value).__name__})."
        )
    if not smallest <= value <= largest:
        raise InvalidJobError(f"{name}: expected a whole number from {smallest} to {largest}, got {value!r}.")
    return int(value)


def _text(name: str, value: object, longest: int | None) -> str:
    if not isinstance(value, str):
        raise InvalidTypeError(f"{name}: expected a string, got {value!r} ({type(value).__name__}).")
    # str.__str__() and not str(): for an Enum that is also a string it returns the value, not the name.
    text = value if type(value) is str else str.__str__(value)
    if not text or (longest is not None and len(text) > longest):
        limits = f"1 to {longest} characters" if longest else "at least 1 character"
        got = f"{len(text)} characters: {text[:40]!r}…" if text else "''"
        raise InvalidJobError(f"{name}: expected {limits}, got {got}.")
    if not text.isascii() or "\x00" in text:
        _refuse_unstorable(name, text)
    return text


def _refuse_unstorable(name: str, text: str) -> None:
    """Raise InvalidJobError for NUL and for half a surrogate pair, which PostgreSQL's text cannot store."""
    for index, character in enumerate(text):
        if character == "\x00" or "\ud800" <= character <= "\udfff":
            raise InvalidJobError(
                f"{name}: expected text that PostgreSQL can store, got {character!r} at position {index}."
            )


_JOB_KEY_MODES = frozenset(mode.value for mode in JobKeyMode)
