"""Turns the arguments of a signal into the text and the attributes of a log record."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django_graphile_worker import conf
from django_graphile_worker.jobs import Job
from django_graphile_worker.logs.errors import error_text
from django_graphile_worker.logs.structured import RESERVED, readable_headers
from django_graphile_worker.text import readable_duration, shown

# A crontab may have thousands of items, all of them due at once.
MAX_LISTED = 100


class JobFacts(NamedTuple):
    """What the lines about a job say of it. A worker builds it faster than a ``Job``."""

    id: int
    task_identifier: str
    queue_name: str | None
    attempts: int
    max_attempts: int
    flags_text: str | None


class _ServedDatabases:
    """The databases, or named installations, that this process works on.

    A line names its database only while the process works on several.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: list[str] = []
        self.are_several = False

    def add(self, aliases: Iterable[str]) -> None:
        with self._lock:
            self._served.extend(aliases)
            self.are_several = len(set(self._served)) > 1

    def remove(self, aliases: Iterable[str]) -> None:
        with self._lock:
            for alias in aliases:
                if alias in self._served:
                    self._served.remove(alias)
            self.are_several = len(set(self._served)) > 1


served_databases = _ServedDatabases()


def place_key() -> str:
    """Return the name of the argument that identifies a queue of this project."""
    return "installation" if conf.are_installations_named() else "database"


def with_place(template: str, about: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the template and its first arguments: the place comes first in a process that works on several."""
    place = about.get(place_key()) if served_databases.are_several else None
    return (f"[%s] {template}", [shown(place)]) if place else (template, [])


def job_attributes(job: Job | JobFacts, outcome: str, about: Mapping[str, Any]) -> dict[str, object]:
    """Return the attributes of a record about a job, which never include the payload."""
    return {
        "job_id": job.id,
        "task_identifier": job.task_identifier,
        "queue_name": job.queue_name,
        "attempt": job.attempts,
        "max_attempts": job.max_attempts,
        "headers": readable_headers(job.flags_text if isinstance(job, JobFacts) else job.flags),
        # As in the metrics and in the history.
        "outcome": outcome.replace(" ", "_"),
        "worker_id": about.get("worker_id", ""),
        "database": about.get("database", ""),
        "installation": about.get("installation", ""),
    }


def write(logger: logging.Logger, level: int, template: str, arguments: Mapping[str, Any]) -> None:
    """Log the arguments of a signal with a template that names them: ``%(worker_id)s``."""
    if logger.isEnabledFor(level):
        facts = {name: value for name, value in arguments.items() if name not in {"sender", "signal"}}
        texts = _TemplateArguments({name: _value_text(value) for name, value in facts.items()})
        key = place_key()
        has_place = served_databases.are_several and facts.get(key)
        logger.log(level, f"[%({key})s] {template}" if has_place else template, texts, extra=_attributes(facts))


class _TemplateArguments(dict[str, str]):
    """The arguments of a template. A missing argument becomes ``?``: the rest of the line is still useful."""

    def __missing__(self, key: str) -> str:
        return "?"


def _value_text(value: object) -> str:
    if isinstance(value, BaseException):
        return error_text(value)
    if isinstance(value, float):
        return readable_duration(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        names = list(map(_name, value))
        more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
        return shown((", ".join(names[:MAX_LISTED]) or "none") + more)
    return shown(value)


def _name(item: object) -> str:
    """Return the name of an object that has one: a crontab item also has a payload, which is never logged."""
    return str(getattr(item, "name", item))


def _attributes(facts: Mapping[str, object]) -> dict[str, object]:
    """Return the attributes of a record: numbers as numbers, for aggregation, other values as in the line."""
    return {
        name: value if value is None or isinstance(value, int | float) else _value_text(value)
        for name, value in facts.items()
        # logging raises KeyError for extra attributes that a record already has.
        if name not in RESERVED
    }
