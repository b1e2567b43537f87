"""The values that the options of a job may have; without Django and psycopg."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, to_delay
from django_graphile_worker.expiry import PREFIX as EXPIRY_PREFIX
from django_graphile_worker.expiry import refuse_malformed_flag
from django_graphile_worker.text import quoted

MAX_IDENTIFIER_LENGTH = 128
MAX_QUEUE_NAME_LENGTH = 128
MAX_JOB_KEY_LENGTH = 512
# A pause has the name of its flag in an index.
MAX_INDEXED_FLAG_LENGTH = 512
SMALLEST_PRIORITY, LARGEST_PRIORITY = -32_768, 32_767
LARGEST_MAX_ATTEMPTS = 32_767
DEFAULT_MAX_ATTEMPTS = 25


class JobKeyMode(StrEnum):
    """What adding a job does if a job with the same key already waits."""

    REPLACE = "replace"
    PRESERVE_RUN_AT = "preserve_run_at"
    UNSAFE_DEDUPE = "unsafe_dedupe"


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
    if isinstance(value, str) and value in _JOB_KEY_MODES:
        return JobKeyMode(value)
    expected = "job_key_mode: expected 'replace', 'preserve_run_at' or 'unsafe_dedupe'"
    if isinstance(value, str):
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
        if flag.startswith(EXPIRY_PREFIX):
            refuse_malformed_flag(flag)
    return flags


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
            raise InvalidJobError(
                f"{name}: expected text that PostgreSQL can store, got {character!r} at position {index}."
            )


_JOB_KEY_MODES = frozenset(mode.value for mode in JobKeyMode)
