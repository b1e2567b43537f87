"""What a project names in ``LOGGING``: a filter that adds the job to every record, and JSON lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from django_graphile_worker.current import current_run
from django_graphile_worker.job_flags import HEADERS_PREFIX, headers_in
from django_graphile_worker.logs.errors import summary, trace
from django_graphile_worker.redaction import redact
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.workers import worker_of
from django_graphile_worker.text import readable_duration, shown

# The attributes that every record has, and those that formatters add.
RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def run_template(outcome: str) -> str:
    """Return the template of the line about the end of a run."""
    return f"%s #%s {outcome} after %s (attempt %s of %s)"


_SUCCEEDED = run_template("succeeded")


class SuccessLine(NamedTuple):
    """What the line of a job that succeeded says; it has no record."""

    created: float
    # The name of the place, if the line has it.
    place: str | None
    task_identifier: str
    job_id: int
    duration: float
    attempt: int
    max_attempts: int
    # As JSON, if they have not been read yet.
    flags: Collection[str] | str | None = None
    queue_name: str | None = None
    # The id of the worker, or the token of its claim.
    worker: str = ""
    # With the database and the installation.
    about: Mapping[str, Any] = MappingProxyType({})

    @property
    def message(self) -> str:
        """The text of the line, without its time: the same as the message of a record."""
        duration = readable_duration(self.duration)
        text = _SUCCEEDED % (shown(self.task_identifier), self.job_id, duration, self.attempt, self.max_attempts)
        return f"[{shown(self.place)}] {text}" if self.place else text


class JobFilter(logging.Filter):
    """Adds the running job to each record, whichever logger it comes from.

    A record has ``job_id``, ``task_identifier``, ``attempt`` and ``headers``, all None outside of jobs, and ``job``, a
    text with the first three for lines that people read. Records that have a ``job_id`` keep their attributes.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        run = current_run()
        if run is not None and not hasattr(record, "job_id"):
            claim = run.claim
            record.job_id, record.task_identifier, record.attempt = claim.id, run.identifier, claim.attempts
            record.headers = readable_headers(claim.flags_text)
        for name in ("job_id", "task_identifier", "attempt", "headers"):
            if not hasattr(record, name):
                setattr(record, name, None)
        if not hasattr(record, "job"):
            about = vars(record)
            record.job = "{task_identifier} #{job_id} ({attempt})".format_map(about) if about["job_id"] else "-"
        return True


def readable_headers(flags: Collection[str] | str | None) -> dict[str, Any]:
    """Return the headers among flags, or in the JSON of a row, without secrets."""
    if not flags or (isinstance(flags, str) and HEADERS_PREFIX not in flags):
        return {}
    headers: dict[str, Any] = redact(headers_in(flags_from(flags) if isinstance(flags, str) else flags))
    return headers


class JSONFormatter(logging.Formatter):
    """Writes each record as one line of JSON: its time, level, logger and message, and all that it has in addition."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": iso_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = {name: value for name, value in vars(record).items() if name not in RESERVED and name != "job"}
        line |= {name: value for name, value in extra.items() if value is not None and value != {}}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["exception"] = type(error).__name__
            line["traceback"] = trace(error) or summary(error)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, ensure_ascii=False, default=str)

    def format_success(self, success: SuccessLine) -> str:
        """Return the line of a job that has no record."""
        line = {
            "time": iso_time(success.created),
            "level": "INFO",
            "logger": "django_graphile_worker.jobs",
            "message": success.message,
            "job_id": success.job_id,
            "task_identifier": success.task_identifier,
            "attempt": success.attempt,
            "max_attempts": success.max_attempts,
            "outcome": "succeeded",
            "duration": success.duration,
            "worker_id": worker_of(success.worker),
            "database": success.about.get("database", ""),
            "installation": success.about.get("installation", ""),
        }
        if success.queue_name is not None:
            line["queue_name"] = success.queue_name
        if headers := readable_headers(success.flags):
            line["headers"] = headers
        return json.dumps(line, ensure_ascii=False)


def iso_time(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
