"""The only reader of ``settings.GRAPHILE_WORKER``: returns frozen, validated values, one for each installation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_graphile_worker import setting_types
from django_graphile_worker.exceptions import ConfigurationError, SettingMistake
from django_graphile_worker.job_options import DEFAULT_MAX_ATTEMPTS, LARGEST_MAX_ATTEMPTS
from django_graphile_worker.setting_types import AlertSettings, Convert, ForbiddenFlags
from django_graphile_worker.text import did_you_mean

SETTING = "GRAPHILE_WORKER"
# A statement that hangs must leave time for a second statement before the lease expires.
STATEMENTS_PER_TIMEOUT = 2
# The installation of calls that name no installation.
DEFAULT = "default"
# In seconds. A longer time is probably in milliseconds, as the pollInterval of graphile-worker.
MAX_POLL_INTERVAL = 600.0
DEFAULT_REDACT = (r"api|token|key|secret|pass|signature|auth|credential|cookie|session",)
# Settings of the whole project and not of one installation; they are set in the installation "default".
OF_THE_PROJECT = frozenset(
    {
        "ADMIN_STATEMENT_TIMEOUT",
        "DROP_WAITING_JOBS",
        "STOP_OLDER_WORKERS",
        "EXCLUDE_TASK_MODULES",
        "LOG_FORMAT",
        "METRICS_PORT",
        "METRICS_TOKEN",
        "MAX_AGE",
        "MAX_JOBS",
        "MAX_MEMORY",
        "MIGRATION_LOCK_TIMEOUT",
        "OPENTELEMETRY",
        "PROCESSES",
        "PROGRESS_PERMISSION",
        "REDACT",
        "SENTRY",
        "RUNSERVER_WORKER",
    }
)
# The packages of the frameworks, whose own backends run no jobs of ours.
_FRAMEWORKS = ("django.tasks.", "django_tasks.")


def _setting(default: Any, convert: Convert) -> Any:
    return field(default=convert(default), metadata={"convert": convert})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The checked settings of an installation; durations are seconds."""

    # The place of the queue.
    schema: str = _setting("graphile_worker", setting_types.schema_name)
    database: str = _setting("default", setting_types.text)
    # Modules that are not imported when the project starts, although their apps are installed.
    exclude_task_modules: tuple[str, ...] = _setting((), setting_types.strings)
    # How a worker runs.
    concurrency: int = _setting(10, setting_types.whole_number(1))
    processes: int = _setting(1, setting_types.whole_number(1))
    max_jobs: int | None = _setting(None, setting_types.optional(setting_types.whole_number(1)))
    max_memory: int | None = _setting(None, setting_types.optional(setting_types.whole_number(1)))
    max_age: float | None = _setting(None, setting_types.optional_duration(1))
    runserver_worker: bool = _setting(False, setting_types.boolean)
    poll_interval: float = _setting(2.0, setting_types.duration(0.01, MAX_POLL_INTERVAL))
    listen: bool = _setting(True, setting_types.boolean)
    prepared_statements: bool = _setting(True, setting_types.boolean)
    local_queue_size: int = _setting(2000, setting_types.whole_number(0))
    grace_period: float = _setting(5.0, setting_types.duration())
    heartbeat_interval: float = _setting(10.0, setting_types.duration(0.1))
    worker_timeout: float = _setting(60.0, setting_types.duration(0.3))
    statement_timeout: float = _setting(30.0, setting_types.duration(0.1))
    use_local_time: bool = _setting(False, setting_types.boolean)
    # What a worker runs.
    tasks: tuple[str, ...] = _setting((), setting_types.strings)
    exclude_tasks: tuple[str, ...] = _setting((), setting_types.strings)
    queue_labels: tuple[str, ...] = _setting((), setting_types.strings)
    forbidden_flags: ForbiddenFlags = _setting((), setting_types.forbidden_flags)
    timeout: float | None = _setting(None, setting_types.optional_duration(setting_types.MIN_TIMEOUT))
    backoff: float | Callable[..., Any] | str | None = _setting(None, setting_types.backoff)
    give_up_on: tuple[type[BaseException] | str, ...] = _setting((), setting_types.exceptions)
    stop_grace: float = _setting(0.5, setting_types.duration(0.1))
    middleware: tuple[str, ...] = _setting((), setting_types.dotted_paths)
    leftover_state: str = _setting("warn", setting_types.one_of("warn", "fail"))
    crontab: str | tuple[Any, ...] = _setting("", setting_types.crontab)
    crontab_file: Path | None = _setting(None, setting_types.path)
    crontab_time_zone: str = _setting("UTC", setting_types.time_zone)
    limits: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = _setting({}, setting_types.limits)
    # What adding a job does.
    max_attempts: int = _setting(DEFAULT_MAX_ATTEMPTS, setting_types.whole_number(1, LARGEST_MAX_ATTEMPTS))
    notify: bool = _setting(True, setting_types.boolean)
    immediate: bool = _setting(False, setting_types.boolean)
    max_payload_size: int = _setting(16 * 1_048_576, setting_types.whole_number(2))
    # What remains of jobs: results and history.
    keep_results: float | None = _setting(None, setting_types.optional_duration(1))
    history: float | None = _setting(None, setting_types.optional_duration(60))
    history_payloads: bool = _setting(False, setting_types.boolean)
    # Errors, logs, traces, statistics and the admin.
    max_error_length: int = _setting(65_536, setting_types.whole_number(200))
    redact_errors: bool = _setting(True, setting_types.boolean)
    log_success: bool = _setting(True, setting_types.boolean)
    log_format: str = _setting("text", setting_types.one_of("text", "json"))
    redact: tuple[re.Pattern[str], ...] = _setting(DEFAULT_REDACT, setting_types.patterns)
    opentelemetry: bool = _setting(False, setting_types.boolean)
    sentry: bool = _setting(False, setting_types.boolean)
    statistics_retention: float = _setting(timedelta(days=8), setting_types.duration())
    events_retention: float = _setting(timedelta(days=30), setting_types.duration(3600))
    admin_statement_timeout: float = _setting(5.0, setting_types.duration(0.1))
    progress_permission: Callable[..., bool] | str | None = _setting(None, setting_types.function)
    # Who is told of problems; None for nobody.
    alerts: AlertSettings | None = _setting(None, setting_types.alerts)
    # Metrics.
    metrics_port: tuple[str, int] | None = _setting(None, setting_types.optional_address)
    metrics_token: str | None = _setting(None, setting_types.optional_token)
    # Migrations.
    migration_lock_timeout: float = _setting(5.0, setting_types.duration(0.001))
    drop_waiting_jobs: bool = _setting(False, setting_types.boolean)
    stop_older_workers: bool = _setting(False, setting_types.boolean)

    @property
    def recycles(self) -> bool:
        """Whether a process has a limit at which another takes its place."""
        return any(limit is not None for limit in (self.max_jobs, self.max_memory, self.max_age))

    @property
    def chosen_max_attempts(self) -> int | None:
        """The setting MAX_ATTEMPTS; None if it is the default of the table."""
        return None if self.max_attempts == DEFAULT_MAX_ATTEMPTS else self.max_attempts

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Settings:
        """Return the settings of upper-case keys; raise one ConfigurationError with every mistake."""
        return _checked(cls(), mapping)

    def replace(self, **overrides: Any) -> Settings:
        """Return the settings with these changes, which are checked like the settings of the project."""
        return _checked(self, {name.upper(): value for name, value in overrides.items()})

    def forbidding(self, flags: Iterable[str]) -> Settings:
        """Return the settings with more flags forbidden."""
        more, before = tuple(flags), self.forbidden_flags
        if not more:
            return self
        return self.replace(forbidden_flags=(*before, *more) if isinstance(before, tuple) else MoreFlags(before, more))


# By the key of the setting: checks a value, and returns it in the form that the code uses.
_CONVERTERS: dict[str, Convert] = {each.name.upper(): each.metadata["convert"] for each in fields(Settings)}


def checked_flags(flags: Any) -> tuple[str, ...]:
    """Return the flags, or raise ConfigurationError. A string is refused: its letters would become flags."""
    if flags is None:
        return ()
    found = tuple(flags) if isinstance(flags, Iterable) and not isinstance(flags, str | bytes) else (None,)
    if not all(isinstance(flag, str) and flag for flag in found):
        problem = f'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected its callable to return a list of flags, got {flags!r}.'
        raise ConfigurationError(mistakes=[SettingMistake(key="FORBIDDEN_FLAGS", message=problem)])
    return found


class MoreFlags:
    """A callable for FORBIDDEN_FLAGS that adds flags to the flags of another callable, sync or async."""

    def __init__(self, source: Callable[[], Any] | str, more: tuple[str, ...]) -> None:
        self.source = source
        self.more = more

    def __call__(self) -> Any:
        flags: Any = (import_string(self.source) if isinstance(self.source, str) else self.source)()
        return self._awaited(flags) if inspect.isawaitable(flags) else (*checked_flags(flags), *self.more)

    async def _awaited(self, flags: Awaitable[Any]) -> tuple[str, ...]:
        return (*checked_flags(await flags), *self.more)


@dataclass(frozen=True, slots=True)
class Configured:
    """The project's settings."""

    # By the alias of the installation; settings without aliases belong to "default".
    installations: Mapping[str, Settings]
    # Whether the project names its installations. If not, "default" is in every database that a caller names.
    are_named: bool


def configured() -> Configured:
    """Return the project's settings, read once, and again whenever a test changes them."""
    global _configured
    if _configured is None:
        _configured = _read()
    return _configured


_configured: Configured | None = None


def current() -> Settings:
    """Return the settings of the installation "default"."""
    return configured().installations[DEFAULT]


def are_installations_named() -> bool:
    return configured().are_named


def schema_of_models() -> str:
    """Return the schema in the table names of the models.

    Models are loaded before system checks run. If the setting is wrong, the models use the default, so that the system
    checks can run and report the mistake.
    """
    return _early("SCHEMA").schema


def excluded_task_modules() -> tuple[str, ...]:
    """Return the modules that are not imported for their tasks; they are read before system checks run, too."""
    return _early("EXCLUDE_TASK_MODULES").exclude_task_modules


def chosen_backends() -> dict[str, str]:
    """Return the paths of the backends of ``settings.TASKS`` by alias, without those of the framework.

    A project that does not use Django Tasks has none: Django's default is a backend of the framework.
    """
    backends = getattr(django_settings, "TASKS", None)
    found = backends.items() if isinstance(backends, Mapping) else ()
    paths = {alias: str(entry.get("BACKEND", "")) for alias, entry in found if isinstance(entry, Mapping)}
    return {alias: path for alias, path in paths.items() if path and not path.startswith(_FRAMEWORKS)}


def has_runserver_worker() -> bool:
    """Return the setting RUNSERVER_WORKER, which is read while the project starts."""
    return _early("RUNSERVER_WORKER").runserver_worker


def _early(key: str) -> Settings:
    """Return the default settings with one of the project's; without it if it is wrong."""
    mapping = getattr(django_settings, SETTING, None)
    try:
        if mapping and DEFAULT in mapping:
            mapping = mapping[DEFAULT]
        return Settings.from_mapping({key: mapping[key]}) if mapping else Settings()
    except (ConfigurationError, KeyError, TypeError):
        return Settings()


def _read() -> Configured:
    mapping = getattr(django_settings, SETTING, {})
    if not isinstance(mapping, Mapping):
        raise _mistaken(f"settings.{SETTING}: expected a dict, got {mapping!r}.")
    named = [key for key, value in mapping.items() if isinstance(value, Mapping) and key not in _CONVERTERS]
    if not named:
        return Configured(installations={DEFAULT: Settings.from_mapping(mapping)}, are_named=False)
    if DEFAULT not in mapping and (misspelt := [key for key in named if str(key).isupper()]):
        raise ConfigurationError(mistakes=[_unknown_key(key, SETTING) for key in misspelt])
    if len(named) < len(mapping):
        others = ", ".join(repr(key) for key in mapping if key not in named)
        raise _mistaken(
            f"{SETTING} has settings or a dict of settings for each installation, not both: {named[0]!r} is a "
            f'dict, beside {others}. Put the settings into {SETTING}["{DEFAULT}"].'
        )
    return Configured(installations=_read_installations(mapping), are_named=True)


def _mistaken(message: str, key: str = "") -> ConfigurationError:
    return ConfigurationError(mistakes=[SettingMistake(key=key, message=message)])


def _read_installations(mapping: Mapping[Any, Mapping[str, Any]]) -> dict[str, Settings]:
    found: dict[str, Settings] = {}
    mistakes = [mistake for alias, values in mapping.items() for mistake in _mistaken_entry(alias, values)]
    if DEFAULT not in mapping:
        message = f"{SETTING} needs an installation {DEFAULT!r} beside {', '.join(map(repr, mapping))}."
        mistakes.append(SettingMistake(key=DEFAULT, message=message))
    for alias, values in mapping.items():
        try:
            found[alias] = _checked(Settings(), values, f'{SETTING}["{alias}"]')
        except ConfigurationError as error:
            mistakes += error.mistakes
    mistakes += _shared_schemas(found)
    if mistakes:
        raise ConfigurationError(mistakes=mistakes)
    return found


def _mistaken_entry(alias: Any, values: Mapping[str, Any]) -> Iterable[SettingMistake]:
    if not isinstance(alias, str) or not re.fullmatch(r"[\w-]+", alias):
        message = f"{SETTING}: the name of an installation has letters, digits, _ and -, got {alias!r}."
        yield SettingMistake(key=str(alias), message=message)
    for key in sorted(OF_THE_PROJECT & set(values)) if alias != DEFAULT else ():
        yield SettingMistake(
            key=key,
            message=f'{SETTING}["{alias}"]: {key!r} is a setting of the project. Put it into {SETTING}["{DEFAULT}"].',
        )


def _shared_schemas(installations: Mapping[str, Settings]) -> Iterable[SettingMistake]:
    owners: dict[tuple[str, str], str] = {}
    for alias, settings in installations.items():
        owner = owners.setdefault((settings.database, settings.schema), alias)
        if owner != alias:
            message = (
                f'{SETTING}["{alias}"]: the installation {owner!r} uses the schema {settings.schema!r} in the database '
                f"{settings.database!r}, too. Set its SCHEMA, or its DATABASE."
            )
            yield SettingMistake(key="SCHEMA", message=message)


def _forget(*, setting: str, **kwargs: Any) -> None:
    global _configured
    if setting == SETTING:
        _configured = None


setting_changed.connect(_forget, dispatch_uid="django_graphile_worker.conf")


def _checked(base: Settings, mapping: Mapping[str, Any], where: str = SETTING) -> Settings:
    values: dict[str, Any] = {}
    mistakes: list[SettingMistake] = []
    for key, value in mapping.items():
        if key not in _CONVERTERS:
            mistakes.append(_unknown_key(key, where))
            continue
        try:
            values[key.lower()] = _CONVERTERS[key](value)
        except setting_types.ExpectationError as expected:
            place = f'{where}["{key}"]' + (f'["{expected.key}"]' if expected.key else "")
            message = f"{place}: expected {expected}, got {expected.got or repr(value)}."
            mistakes.append(SettingMistake(key=key, message=message))
    if not mistakes:
        candidate = replace(base, **values)
        if "statement_timeout" not in values:
            candidate = _with_shorter_statements(candidate)
        mistakes = list(_contradictions(candidate, where))
        if not mistakes:
            return candidate
    raise ConfigurationError(mistakes=mistakes)


def _with_shorter_statements(settings: Settings) -> Settings:
    """Shorten the default STATEMENT_TIMEOUT if a short WORKER_TIMEOUT needs it."""
    longest = settings.worker_timeout / STATEMENTS_PER_TIMEOUT
    if settings.statement_timeout <= longest or settings.statement_timeout != Settings().statement_timeout:
        return settings
    return replace(settings, statement_timeout=longest)


def _unknown_key(key: object, where: str) -> SettingMistake:
    name = str(key)
    known = sorted(_CONVERTERS)
    way_out = did_you_mean(name.upper(), known) or f"Known keys: {', '.join(known)}."
    message = f"{where}: expected a known key, got {key!r}. {way_out}"
    return SettingMistake(key=name, message=message, is_unknown_key=True)


def _contradictions(candidate: Settings, where: str) -> Iterable[SettingMistake]:
    if candidate.worker_timeout < 3 * candidate.heartbeat_interval:
        yield SettingMistake(
            key="WORKER_TIMEOUT",
            message=f'{where}["WORKER_TIMEOUT"]: expected at least three times HEARTBEAT_INTERVAL '
            f"({3 * candidate.heartbeat_interval:g} seconds), got {candidate.worker_timeout:g}: "
            "a worker that misses one heartbeat would lose its jobs.",
        )
    if candidate.statement_timeout > candidate.worker_timeout / STATEMENTS_PER_TIMEOUT:
        yield SettingMistake(
            key="STATEMENT_TIMEOUT",
            message=f'{where}["STATEMENT_TIMEOUT"]: expected at most half of WORKER_TIMEOUT '
            f"({candidate.worker_timeout / STATEMENTS_PER_TIMEOUT:g} seconds), got {candidate.statement_timeout:g}: "
            "a worker whose statement hangs would lose its jobs before it can try again.",
        )
