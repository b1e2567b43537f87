"""The settings that a worker started by code takes as keywords."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal, TypedDict


class OnceOptions(TypedDict, total=False):
    """Settings of ``run_once()``, in lower case; ``docs/reference/settings.md`` explains each."""

    schema: str
    concurrency: int
    processes: Literal[1]
    poll_interval: float | timedelta
    listen: bool
    prepared_statements: bool
    local_queue_size: int
    grace_period: float | timedelta
    heartbeat_interval: float | timedelta
    worker_timeout: float | timedelta
    statement_timeout: float | timedelta
    use_local_time: bool
    tasks: Sequence[str]
    exclude_tasks: Sequence[str]
    queue_labels: Sequence[str]
    forbidden_flags: Sequence[str] | Callable[[], Iterable[str]] | str
    timeout: float | timedelta | None
    stop_grace: float | timedelta
    middleware: Sequence[str]
    leftover_state: Literal["warn", "fail"]
    notify: bool
    keep_results: float | timedelta | None
    history: float | timedelta | None
    history_payloads: bool
    max_error_length: int
    redact_errors: bool
    log_success: bool
    statistics_retention: float | timedelta
    events_retention: float | timedelta


class WorkerOptions(OnceOptions, total=False):
    """Settings of ``run_worker()`` and ``Worker``: the settings of ``run_once()``, and the crontab."""

    crontab: str | Sequence[Any]
    crontab_file: str | PathLike[str] | None
    crontab_time_zone: str
