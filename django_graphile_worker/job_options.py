"""The options of a job: one table of them, which all layers read, and the checks of their values.

``OPTIONS`` says of each option how its value is checked, how it is stored, and how it is given on a command line and in
a form. A new option is a row of the table, its type in ``SpecOptions`` and a field of ``JobSpec``; what the option does
is up to the code that reads it. No access to the database is needed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from enum import Enum, StrEnum, auto
from functools import lru_cache
from typing import Any, Literal, TypedDict

from django.utils.translation import gettext_lazy

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, to_delay
from django_graphile_worker.job_flags import expiry_flag, headers_flag, refuse_malformed_flag
from django_graphile_worker.text import quoted

MAX_IDENTIFIER_LENGTH = 128
MAX_QUEUE_NAME_LENGTH = 128
MAX_JOB_KEY_LENGTH = 512
# A pause has the name of its flag in an index.
MAX_INDEXED_FLAG_LENGTH = 512
SMALLEST_PRIORITY, LARGEST_PRIORITY = -32_768, 32_767
LARGEST_MAX_ATTEMPTS = 32_767
# Every claim reads the headers of its jobs.
MAX_HEADERS_LENGTH = 8_000
DEFAULT_MAX_ATTEMPTS = 25


class JobKeyMode(StrEnum):
    """What adding a job does if a job with the same key already waits."""

    REPLACE = "replace"
    PRESERVE_RUN_AT = "preserve_run_at"
    UNSAFE_DEDUPE = "unsafe_dedupe"


MODES = frozenset(mode.value for mode in JobKeyMode)
# A mode, or its name, as callers may write it.
JobKeyModeOption = JobKeyMode | Literal["replace", "preserve_run_at", "unsafe_dedupe"]


@dataclass(frozen=True, slots=True)
class Unique:
    """Which jobs of a task must not exist twice: those with the same key, or without a key those with equal payloads.

    While such a job waits or runs, no second one is added. ``for_`` also counts jobs that were added within this time
    and have ended.
    """

    # A function gets the payload, that of a Django task the arguments of the call.
    key: str | Callable[..., str] | None = None
    for_: timedelta | float | None = None

    def __post_init__(self) -> None:
        if self.key is not None and not callable(self.key):
            object.__setattr__(self, "key", storable_text("unique key", self.key, MAX_JOB_KEY_LENGTH))
        if self.for_ is not None:
            window = to_delay(self.for_, name="Unique(for_=...)", expected="a timedelta or a number of seconds")
            object.__setattr__(self, "for_", window)

    @property
    def window(self) -> float | None:
        """``for_`` in seconds."""
        return self.for_.total_seconds() if isinstance(self.for_, timedelta) else None

    def for_payload(self, payload: Any) -> Unique:
        """Return the option for one job: with the text that the function of the key returns."""
        return Unique(self.key(payload), self.for_) if callable(self.key) else self


# What travels beside the payload: the trace, the tenant, the user, the id of a request.
Headers = Mapping[str, str | int | float | bool | None]
# By when a job must have been started: a time, a duration or a number of seconds from run_at on, False for never.
Expires = datetime | timedelta | float | bool


class SpecOptions(TypedDict, total=False):
    """The options of a job, as the arguments of ``JobSpec``."""

    queue_name: str | None
    run_at: datetime | timedelta | None
    max_attempts: int | None
    job_key: str | None
    job_key_mode: JobKeyModeOption | None
    priority: int | None
    flags: Iterable[str] | None
    expires: Expires | None
    unique: Unique | str | bool | None
    headers: Headers | None


class JobOptions(SpecOptions, total=False):
    """The keyword arguments of ``add_job()``."""

    using: str | None
    installation: str | None


class DefaultOptions(TypedDict, total=False):
    """The options that ``@task`` takes for all jobs of a task."""

    queue_name: str | None
    max_attempts: int | None
    job_key: str | Callable[[Any], str | None] | None
    job_key_mode: JobKeyModeOption | None
    priority: int | None
    flags: Iterable[str] | None
    unique: Unique | str | bool | None


_EXPECTED_EXPIRY = "an aware datetime, a timedelta or a number of seconds from run_at on, or False for never"


def valid_expires(value: object, *, name: str = "expires") -> datetime | timedelta | bool | None:
    """Return a time, a duration, False for never or None; raise for any other value."""
    if value is None or value is False or isinstance(value, datetime):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise InvalidJobError(f"{name}: expected a duration of up to a million years, got {value!r}.") from None
    if not isinstance(value, timedelta):
        raise InvalidTypeError(f"{name}: expected {_EXPECTED_EXPIRY}, got {value!r} ({type(value).__name__}).")
    if value <= timedelta(0):
        raise InvalidJobError(f"{name}: expected a duration above zero, got {value!r}.")
    return value


def valid_unique(value: object) -> Unique | None:
    """Return the option ``unique``: True stands for equal payloads, a string is a key, False is for none."""
    if value is None or value is False:
        return None
    if value is True:
        return Unique()
    if isinstance(value, str):
        return Unique(value)
    if isinstance(value, Unique):
        return value
    raise InvalidTypeError(
        f"unique: expected True, False, a key (str) or Unique(key=..., for_=...), got {type(value).__name__}."
    )


def valid_identifier(value: object) -> str:
    return storable_text("identifier", value, MAX_IDENTIFIER_LENGTH)


# Most specs repeat a few identifiers.
known_identifier = lru_cache(maxsize=256)(valid_identifier)


def valid_queue_name(value: object) -> str | None:
    return None if value is None else storable_text("queue_name", value, MAX_QUEUE_NAME_LENGTH)


def valid_job_key(value: object) -> str | None:
    return None if value is None else storable_text("job_key", value, MAX_JOB_KEY_LENGTH)


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
    expected = "job_key_mode: expected 'replace', 'preserve_run_at' or 'unsafe_dedupe'"
    if isinstance(value, str):
        if value in MODES:
            return JobKeyMode(value)
        raise InvalidJobError(f"{expected}, got {value!r}.")
    raise InvalidTypeError(f"{expected}, got {value!r} ({type(value).__name__}).")


def valid_run_at(value: object) -> datetime | timedelta | None:
    return None if value is None else valid_time("run_at", value)


def valid_time(name: str, value: object) -> datetime | timedelta:
    if not isinstance(value, datetime | timedelta):
        raise InvalidTypeError(
            f"{name}: expected an aware datetime, or a timedelta from the database's now, "
            f"got {value!r} ({type(value).__name__})."
        )
    try:
        year = (datetime.now(UTC) + value if isinstance(value, timedelta) else value).year
    except OverflowError:
        year = 0
    # The margin of a year covers differences between the clocks and time zones of this process and of the database.
    if not MINYEAR < year < MAXYEAR:
        raise InvalidJobError(f"{name}: expected a time in the years 2 to 9998, got {value!r}.")
    return value


def valid_flags(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidTypeError(f"flags: expected a list or set of strings, got {value!r} ({type(value).__name__}).")
    flags = tuple(dict.fromkeys(storable_text("flags", flag, None) for flag in value))
    for flag in flags:
        refuse_malformed_flag(flag)
    return flags


def valid_headers(value: object) -> dict[str, Any] | None:
    """Return a copy of the headers; None for no headers."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidTypeError(f"headers: expected a dict, got {type(value).__name__}.")
    headers = dict(value)
    for name, item in headers.items():
        if not isinstance(name, str) or not name:
            raise InvalidTypeError(f"headers: expected names that are strings, got {quoted(name)}.")
        if not isinstance(item, str | int | float | bool | None):
            raise InvalidTypeError(
                f"headers: expected a string, a number, True, False or None as {name!r}, got {type(item).__name__}. "
                "Put other values into the payload."
            )
        for text in (name, item):
            if isinstance(text, str) and not _is_encodable(text):
                raise InvalidJobError(f"headers: expected text without half a surrogate pair, got {text!r}.")
        if isinstance(item, float) and not math.isfinite(item):
            raise InvalidJobError(f"headers: expected a number that JSON has as {name!r}, got {item!r}.")
    length = len(headers_flag(headers))
    if length > MAX_HEADERS_LENGTH:
        raise InvalidJobError(
            f"headers: expected at most {MAX_HEADERS_LENGTH} characters as JSON, got {length}. Put large values into "
            "the payload."
        )
    return headers or None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def valid_flag(value: object) -> str:
    """Return the name of a flag; raise for a name that is too long for an index."""
    return storable_text("flag", value, MAX_INDEXED_FLAG_LENGTH)


def whole_number(name: str, value: object, smallest: int, largest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        got = f"{quoted(value)} ({type(value).__name__})"
        raise InvalidTypeError(f"{name}: expected a whole number from {smallest} to {largest}, got {got}.")
    if not smallest <= value <= largest:
        raise InvalidJobError(f"{name}: expected a whole number from {smallest} to {largest}, got {quoted(value)}.")
    return int(value)


def storable_text(name: str, value: object, longest: int | None) -> str:
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
            raise InvalidJobError(f"{name}: PostgreSQL cannot store {character!r} at position {index}.")


class Kind(Enum):
    """What the values of an option are: command lines, forms and tests take them accordingly."""

    TEXT = auto()
    NUMBER = auto()
    # A time, or a duration from another time on.
    TIME = auto()
    CHOICE = auto()
    # Several texts.
    TEXTS = auto()
    # Names with values.
    PAIRS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOption:
    """An option of a job, and what each layer needs to know of it."""

    name: str
    kind: Kind
    # Returns the value as JobSpec has it, and None for None; raises InvalidJobError or InvalidTypeError.
    check: Callable[[Any], Any]
    # The limits of a number, the length of a text, and the choices with what each of them means.
    smallest: int | None = None
    largest: int | None = None
    max_length: int | None = None
    choices: tuple[tuple[str, Any], ...] = ()
    # Whether @task() takes it for all jobs of a task.
    is_of_tasks: bool = False

    # The type of the argument with this name that the SQL function add_job() has; None if it has none.
    sql_type: str | None = None
    # An option that is stored as a flag of the job: the flag for a value and the time at which the job is due.
    flag: Callable[[Any, datetime], str] | None = None
    # The attribute of a Job that has the option; None if none has it.
    attribute: str | None = None
    # The attribute of a Job from which a duration is counted.
    counted_from: str | None = None
    # What a job has for which the option was left out.
    default: Any = None

    # On a command line: --argument METAVAR.
    argument: str
    metavar: str
    help: str
    # In a form of the admin; both are translated when they are shown.
    label: Any
    help_text: Any = ""


OPTIONS: dict[str, JobOption] = {
    option.name: option
    for option in (
        JobOption(
            name="queue_name",
            kind=Kind.TEXT,
            check=valid_queue_name,
            max_length=MAX_QUEUE_NAME_LENGTH,
            is_of_tasks=True,
            sql_type="pg_catalog.text",
            attribute="queue_name",
            argument="queue",
            metavar="QUEUE",
            help="Add the job to this queue, which runs one job at a time.",
            label=gettext_lazy("Queue"),
            help_text=gettext_lazy("The jobs of a queue run one after another. Default: the queue of the task."),
        ),
        JobOption(
            name="run_at",
            kind=Kind.TIME,
            check=valid_run_at,
            sql_type="pg_catalog.timestamptz",
            attribute="run_at",
            counted_from="updated_at",
            default=timedelta(0),
            argument="run-at",
            metavar="TIME",
            help="Run at this time: +5m, or a time like 2026-05-01T12:00 (default: now).",
            label=gettext_lazy("Run at"),
            help_text=gettext_lazy("Default: now."),
        ),
        JobOption(
            name="max_attempts",
            kind=Kind.NUMBER,
            check=valid_max_attempts,
            smallest=1,
            largest=LARGEST_MAX_ATTEMPTS,
            is_of_tasks=True,
            sql_type="pg_catalog.int4",
            attribute="max_attempts",
            default=DEFAULT_MAX_ATTEMPTS,
            argument="max-attempts",
            metavar="N",
            help="Allow at most N attempts.",
            label=gettext_lazy("Maximum attempts"),
        ),
        JobOption(
            name="job_key",
            kind=Kind.TEXT,
            check=valid_job_key,
            max_length=MAX_JOB_KEY_LENGTH,
            is_of_tasks=True,
            sql_type="pg_catalog.text",
            attribute="key",
            argument="key",
            metavar="KEY",
            help="Replace the waiting job with this key, if there is one.",
            label=gettext_lazy("Job key"),
            help_text=gettext_lazy("At most one job has a key."),
        ),
        JobOption(
            name="job_key_mode",
            kind=Kind.CHOICE,
            check=valid_job_key_mode,
            choices=(
                (JobKeyMode.REPLACE.value, gettext_lazy("replace: the new job replaces the waiting job")),
                (
                    JobKeyMode.PRESERVE_RUN_AT.value,
                    gettext_lazy("preserve_run_at: the new job replaces the waiting job, and keeps its time"),
                ),
                (
                    JobKeyMode.UNSAFE_DEDUPE.value,
                    gettext_lazy("unsafe_dedupe: no job is added if any job has the key, even a running or failed job"),
                ),
            ),
            is_of_tasks=True,
            sql_type="pg_catalog.text",
            default=JobKeyMode.REPLACE,
            argument="key-mode",
            metavar="MODE",
            help="Choose which values a waiting job with the key keeps.",
            label=gettext_lazy("Job key mode"),
            help_text=gettext_lazy(
                "What happens if a job with this key exists. Warning: with unsafe_dedupe the work may never be done: "
                "a job that is running or has failed is kept instead of the new job."
            ),
        ),
        JobOption(
            name="priority",
            kind=Kind.NUMBER,
            check=valid_priority,
            smallest=SMALLEST_PRIORITY,
            largest=LARGEST_PRIORITY,
            is_of_tasks=True,
            sql_type="pg_catalog.int4",
            attribute="priority",
            default=0,
            argument="priority",
            metavar="N",
            help="Set the priority; lower numbers run first.",
            label=gettext_lazy("Priority"),
            help_text=gettext_lazy("Lower numbers run first."),
        ),
        JobOption(
            name="flags",
            kind=Kind.TEXTS,
            check=valid_flags,
            is_of_tasks=True,
            sql_type="pg_catalog.text[]",
            attribute="flags",
            default=frozenset(),
            argument="flag",
            metavar="FLAG",
            help="Set this flag; may be given several times.",
            label=gettext_lazy("Flags"),
            help_text=gettext_lazy("Separated by commas."),
        ),
        JobOption(
            name="expires",
            kind=Kind.TIME,
            check=valid_expires,
            flag=expiry_flag,
            attribute="expires_at",
            counted_from="run_at",
            argument="expires",
            metavar="TIME",
            help="Do not start the job after this time: +1h, counted from --run-at, or a time like 2026-05-01T12:00.",
            label=gettext_lazy("Expires"),
            help_text=gettext_lazy("The job is not started after this time."),
        ),
        JobOption(
            name="unique",
            kind=Kind.TEXT,
            check=valid_unique,
            max_length=MAX_JOB_KEY_LENGTH,
            is_of_tasks=True,
            argument="unique",
            metavar="KEY",
            help="Add no job while another job of the task with this unique key waits or runs.",
            label=gettext_lazy("Unique key"),
            help_text=gettext_lazy("No job is added while another job of the task with this key waits or runs."),
        ),
        JobOption(
            name="headers",
            kind=Kind.PAIRS,
            check=valid_headers,
            flag=headers_flag,
            attribute="headers",
            default={},
            argument="header",
            metavar="NAME=VALUE",
            help="Set this header, a value beside the payload; may be given several times.",
            label=gettext_lazy("Headers"),
            help_text=gettext_lazy('JSON: {"tenant": "acme"}. The task gets them beside the payload.'),
        ),
    )
}
# In the order of the arguments of the SQL function add_job().
SQL_OPTIONS = tuple(
    OPTIONS[name] for name in ("queue_name", "run_at", "max_attempts", "job_key", "priority", "flags", "job_key_mode")
)
FLAG_OPTIONS = tuple(option for option in OPTIONS.values() if option.flag is not None)


def flags_of_recurring(options: object, run_at: datetime) -> tuple[str, ...]:
    """Return the flags that store options of ``@task`` for a job of a recurring task, which is due at a time.

    ``options`` has an attribute for each such option: the defaults of the task, or a crontab item.
    """
    given = ((option.flag, getattr(options, option.name)) for option in FLAG_OPTIONS if option.is_of_tasks)
    return tuple(flag(value, run_at) for flag, value in given if flag is not None and value is not None)
