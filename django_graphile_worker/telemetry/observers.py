"""The modules that follow jobs from where they are added to the end of each run, as far as settings ask for them.

Such a module has two functions: ``connect()`` connects its receivers of signals, in every process, and ``begin()`` is
called where a worker runs a job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol

from django_graphile_worker import conf
from django_graphile_worker.current import CurrentRun
from django_graphile_worker.exceptions import ConfigurationError, SettingMistake
from django_graphile_worker.job_flags import HEADERS_PREFIX, headers_in
from django_graphile_worker.logs.errors import log_exception
from django_graphile_worker.sql.codecs import flags_from

logger = logging.getLogger("django_graphile_worker.telemetry")

# How a run ended. Another attempt follows after "retry_later", which the task asked for, and after "interrupted".
Ending = Literal["succeeded", "failed", "retry_later", "interrupted", "cancelled"]
# Called when the run ends, in the context of ``begin()``, or on another thread for a run that ends without its thread.
End = Callable[[Ending, BaseException | None], None]


class Observer(Protocol):
    """A module that was asked for."""

    def connect(self) -> None: ...
    def begin(self, run: CurrentRun) -> End: ...


class _Choice(NamedTuple):
    key: str
    # The name of the module, and of the extra.
    name: str
    # The library that the module is built on.
    library: str

    @property
    def is_asked_for(self) -> bool:
        return bool(getattr(conf.current(), self.key.lower()))

    def load(self) -> Any:
        try:
            return import_module(f"django_graphile_worker.telemetry.{self.name}")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != self.library:
                raise
            message = (
                f'{conf.SETTING}["{self.key}"]: the library is not installed ({error}). Run: '
                f'pip install "django-graphile-worker[{self.name}]"'
            )
            raise ConfigurationError(mistakes=[SettingMistake(key=self.key, message=message)]) from error


# In this order they add headers: Sentry keeps the baggage of OpenTelemetry.
_CHOICES = (_Choice("OPENTELEMETRY", "opentelemetry", "opentelemetry"), _Choice("SENTRY", "sentry", "sentry_sdk"))


def are_asked_for() -> bool:
    return any(choice.is_asked_for for choice in _CHOICES)


def load() -> list[Observer]:
    """Return the modules that the settings ask for; raise ConfigurationError if a library is missing."""
    return [choice.load() for choice in _CHOICES if choice.is_asked_for]


def connect() -> None:
    """Connect what the settings ask for. Mistakes are left to the system checks, and to the start of a worker."""
    try:
        observers = load()
    except ConfigurationError:
        return
    for observer in observers:
        observer.connect()


def begin(observers: Sequence[Observer], run: CurrentRun) -> End:
    """Tell the observers that a run begins, and return the function that tells them how it ended."""
    ends: list[End] = []
    for observer in observers:
        with harmless():
            ends.append(observer.begin(run))

    def end(ending: Ending, error: BaseException | None) -> None:
        # A run that ends without its thread is ended by another thread, and its own may come later.
        while ends:
            with harmless(), suppress(IndexError):
                ends.pop()(ending, error)

    return end


def headers_of(run: CurrentRun) -> dict[str, str]:
    """Return the headers of the job that are texts, as those that processes pass on to each other."""
    flags_text = run.claim.flags_text
    if not flags_text or HEADERS_PREFIX not in flags_text:
        return {}
    return {name: value for name, value in headers_in(flags_from(flags_text)).items() if isinstance(value, str)}


_logged: set[type[Exception]] = set()


@contextmanager
def harmless() -> Iterator[None]:
    """Ignore errors, which must fail neither a job nor ``add_job()``. The first of each class is logged."""
    try:
        yield
    except Exception as error:
        if type(error) not in _logged:
            _logged.add(type(error))
            line = "Telemetry failed, and jobs continue without it. Later errors of this class are not logged."
            log_exception(logger, logging.WARNING, line, error=error)
