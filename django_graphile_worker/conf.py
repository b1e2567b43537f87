"""The only reader of ``settings.GRAPHILE_WORKER``: one frozen, validated value."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_graphile_worker.exceptions import ConfigurationError, SettingMistake
from django_graphile_worker.flags import MoreFlags, checked_flags
from django_graphile_worker.values import Value

SETTING = "GRAPHILE_WORKER"
LONGEST_DURATION = timedelta(days=3650).total_seconds()
LARGEST_NUMBER = 2**31 - 1
# A statement that hangs must leave time for another before the lease is over.
STATEMENTS_PER_TIMEOUT = 2
DEFAULT_REDACT = (r"api|token|key|secret|pass|signature|auth|credential|cookie|session",)

ForbiddenFlags = tuple[str, ...] | Callable[[], Iterable[str]] | str
Convert = Callable[[Any], Any]


class _ExpectationError(Exception):
    """A converter's complaint: what was expected."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _ExpectationError("a non-empty string")
    return value


def _schema_name(value: Any) -> str:
    expected = (
        "a schema name of letters, digits and underscores that does not begin with a digit (at most 63 characters)"
    )
    if not isinstance(value, str) or not (value.isascii() and value.isidentifier() and len(value) <= 63):
        raise _ExpectationError(expected)
    if value.lower().startswith("pg_") or value in {"information_schema", "public"}:
        raise _ExpectationError("a schema of its own; PostgreSQL's own schemas and public are not")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _ExpectationError("True or False")
    return value


def _whole_number(smallest: int) -> Convert:
    def convert(value: Any) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not smallest <= value <= LARGEST_NUMBER:
            raise _ExpectationError(f"a whole number of at least {smallest}")
        return int(value)

    return convert


def _duration(smallest: float = 0.0) -> Convert:
    """Seconds or a timedelta; seconds inside."""

    def convert(value: Any) -> float:
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not math.isfinite(seconds) or not smallest <= seconds <= LONGEST_DURATION:
            least = f"of at least {smallest:g} seconds" if smallest else "of zero or more"
            raise _ExpectationError(f"a number of seconds or a timedelta, {least} and at most ten years")
        return float(seconds)

    return convert


def _strings(value: Any) -> tuple[str, ...]:
    is_sequence = isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)
    if not is_sequence or not all(isinstance(item, str) and item for item in value):
        raise _ExpectationError("a list of non-empty strings")
    return tuple(value)


def _dotted_paths(value: Any) -> tuple[str, ...]:
    paths = _strings(value)
    if not all(_is_dotted_path(path) for path in paths):
        raise _ExpectationError("a list of dotted paths like 'shop.jobs.middleware'")
    return paths


def _forbidden_flags(value: Any) -> ForbiddenFlags:
    if callable(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, str) and _is_dotted_path(value):
        return value
    try:
        return _strings(value)
    except _ExpectationError:
        raise _ExpectationError("a list of flags, a callable, or the dotted path of a callable") from None


def _is_dotted_path(value: str) -> bool:
    parts = value.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def _crontab(value: Any) -> str | tuple[Any, ...]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple):
        raise _ExpectationError("crontab text, or a list of crontab lines and CronItems")
    return tuple(value)


def _path(value: Any) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str | os.PathLike):
        raise _ExpectationError("a path, or None")
    return Path(value)


def _one_of(*choices: str) -> Convert:
    def convert(value: Any) -> str:
        if value not in choices:
            raise _ExpectationError(" or ".join(map(repr, choices)))
        return str(value)

    return convert


def _patterns(value: Any) -> tuple[re.Pattern[str], ...]:
    expected = "a list of regular expressions"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _ExpectationError(expected)
    try:
        return tuple(item if isinstance(item, re.Pattern) else re.compile(item, re.IGNORECASE) for item in value)
    except (re.error, TypeError) as error:
        raise _ExpectationError(f"{expected} ({error})") from None


class _Setting:
    """A field of ``Settings``: how its values are checked, and its default, which is checked when it is first read."""

    converters: ClassVar[dict[str, Convert]] = {}

    def __init__(self, default: Any, convert: Convert) -> None:
        self._default = default
        self._convert = convert

    def __set_name__(self, settings: type[Settings], name: str) -> None:
        self._name = name
        self.converters[name.upper()] = self._convert

    def __get__(self, instance: Settings | None, settings: type[Settings]) -> Any:
        value = self._convert(self._default)
        setattr(settings, self._name, value)
        return value


def _setting(default: Any, convert: Convert) -> Any:
    return _Setting(default, convert)


class Settings(Value):
    """``settings.GRAPHILE_WORKER``, checked; durations are seconds."""

    # Where the queue is.
    schema: str = _setting("graphile_worker", _schema_name)
    database: str = _setting("default", _text)
    # How a worker works.
    concurrency: int = _setting(10, _whole_number(1))
    processes: int = _setting(1, _whole_number(1))
    poll_interval: float = _setting(2.0, _duration(0.01))
    listen: bool = _setting(True, _boolean)
    prepared_statements: bool = _setting(True, _boolean)
    local_queue_size: int = _setting(2000, _whole_number(0))
    grace_period: float = _setting(5.0, _duration())
    heartbeat_interval: float = _setting(10.0, _duration(0.1))
    worker_timeout: float = _setting(60.0, _duration(0.3))
    statement_timeout: float = _setting(30.0, _duration(0.1))
    use_local_time: bool = _setting(False, _boolean)
    # What a worker runs.
    tasks: tuple[str, ...] = _setting((), _strings)
    exclude_tasks: tuple[str, ...] = _setting((), _strings)
    forbidden_flags: ForbiddenFlags = _setting((), _forbidden_flags)
    middleware: tuple[str, ...] = _setting((), _dotted_paths)
    leftover_state: str = _setting("warn", _one_of("warn", "fail"))
    crontab: str | tuple[Any, ...] = _setting("", _crontab)
    crontab_file: Path | None = _setting(None, _path)
    # What adding a job does.
    notify: bool = _setting(True, _boolean)
    max_payload_size: int = _setting(16 * 1_048_576, _whole_number(2))
    # What is told.
    max_error_length: int = _setting(65_536, _whole_number(200))
    redact_errors: bool = _setting(True, _boolean)
    log_success: bool = _setting(True, _boolean)
    redact: tuple[re.Pattern[str], ...] = _setting(DEFAULT_REDACT, _patterns)
    statistics_retention: float = _setting(timedelta(days=8), _duration())
    admin_statement_timeout: float = _setting(5.0, _duration(0.1))
    # Migrations.
    migration_lock_timeout: float = _setting(5.0, _duration(0.001))
    drop_waiting_jobs: bool = _setting(False, _boolean)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Settings:
        """Check upper-case keys and their values; every mistake is in one error."""
        return _checked(cls(), mapping)

    def replace(self, **overrides: Any) -> Settings:
        """The same settings with some changed, checked like those of the project."""
        return _checked(self, {name.upper(): value for name, value in overrides.items()})

    def forbidding(self, flags: Iterable[str]) -> Settings:
        """The same settings with more flags forbidden."""
        more, before = tuple(flags), self.forbidden_flags
        if not more:
            return self
        return self.replace(forbidden_flags=(*before, *more) if isinstance(before, tuple) else MoreFlags(before, more))

    def current_forbidden_flags(self) -> tuple[str, ...]:
        """The forbidden flags now: a callable is asked again each time."""
        flags = self.forbidden_flags
        if isinstance(flags, tuple):
            return flags
        function = import_string(flags) if isinstance(flags, str) else flags
        return checked_flags(function())


def current() -> Settings:
    """The project's settings, read once and again whenever tests change them."""
    global _current
    if _current is None:
        _current = _read()
    return _current


_current: Settings | None = None


def schema_of_models() -> str:
    """The schema in the models' table names.

    Models are made before anything can be checked: while the setting is wrong they take the default, so that
    the system checks get to say what is wrong.
    """
    mapping = getattr(django_settings, SETTING, None)
    try:
        return Settings.from_mapping({"SCHEMA": mapping["SCHEMA"]}).schema if mapping else Settings().schema
    except (ConfigurationError, KeyError, TypeError):
        return Settings().schema


def _read() -> Settings:
    mapping = getattr(django_settings, SETTING, {})
    if not isinstance(mapping, Mapping):
        message = f"settings.{SETTING}: expected a dict, got {mapping!r}."
        raise ConfigurationError(mistakes=[SettingMistake(key="", message=message)])
    return Settings.from_mapping(mapping)


def _forget(*, setting: str, **kwargs: Any) -> None:
    global _current
    if setting == SETTING:
        _current = None


setting_changed.connect(_forget, dispatch_uid="django_graphile_worker.conf")


def _checked(base: Settings, mapping: Mapping[str, Any]) -> Settings:
    values: dict[str, Any] = {}
    mistakes: list[SettingMistake] = []
    for key, value in mapping.items():
        if key not in _Setting.converters:
            mistakes.append(_unknown_key(key))
            continue
        try:
            values[key.lower()] = _Setting.converters[key](value)
        except _ExpectationError as expected:
            message = f'{SETTING}["{key}"]: expected {expected}, got {value!r}.'
            mistakes.append(SettingMistake(key=key, message=message))
    if not mistakes:
        candidate = Settings(**_with_statement_timeout(vars(base) | values))
        mistakes = list(_contradictions(candidate))
        if not mistakes:
            return candidate
    raise ConfigurationError(mistakes=mistakes)


def _with_statement_timeout(values: dict[str, Any]) -> dict[str, Any]:
    """Where nobody says how long a statement may take, a short WORKER_TIMEOUT makes it shorter than the default."""
    longest = values.get("worker_timeout", math.inf) / STATEMENTS_PER_TIMEOUT
    if "statement_timeout" in values or longest >= Settings.statement_timeout:
        return values
    return values | {"statement_timeout": longest}


def _unknown_key(key: object) -> SettingMistake:
    name = str(key)
    close = difflib.get_close_matches(name.upper(), _Setting.converters, n=1)
    way_out = f"Did you mean {close[0]!r}?" if close else f"Known keys: {', '.join(sorted(_Setting.converters))}."
    message = f"{SETTING}: expected a known key, got {key!r}. {way_out}"
    return SettingMistake(key=name, message=message, is_unknown_key=True)


def _contradictions(candidate: Settings) -> Iterable[SettingMistake]:
    if candidate.worker_timeout < 3 * candidate.heartbeat_interval:
        yield SettingMistake(
            key="WORKER_TIMEOUT",
            message=f'{SETTING}["WORKER_TIMEOUT"]: expected at least three times HEARTBEAT_INTERVAL '
            f"({3 * candidate.heartbeat_interval:g} seconds), got {candidate.worker_timeout:g}: "
            "a worker that misses one beat would lose its jobs.",
        )
    if candidate.statement_timeout > candidate.worker_timeout / STATEMENTS_PER_TIMEOUT:
        yield SettingMistake(
            key="STATEMENT_TIMEOUT",
            message=f'{SETTING}["STATEMENT_TIMEOUT"]: expected at most half of WORKER_TIMEOUT '
            f"({candidate.worker_timeout / STATEMENTS_PER_TIMEOUT:g} seconds), got {candidate.statement_timeout:g}: "
            "a worker whose statement hangs would lose its jobs before it can try again.",
        )
