"""The keywords of a worker that is started by code."""

from __future__ import annotations

from dataclasses import fields

from django_graphile_worker import (
    conf,
)
from django_graphile_worker.worker.entrypoints import OnceOptions, WorkerOptions


def test_options__are_the_settings_that_a_worker_from_code_can_have() -> None:
    given = WorkerOptions.__annotations__ | OnceOptions.__annotations__
    of_the_process = {
        "database",
        "immediate",
        "limits",
        "max_payload_size",
        "redact",
        "admin_statement_timeout",
        "progress_permission",
        "metrics_port",
        "metrics_token",
        "exclude_task_modules",
        "max_attempts",
        "backoff",
        "give_up_on",
        "log_format",
        "opentelemetry",
        "sentry",
        "alerts",
        "max_jobs",
        "max_memory",
        "max_age",
        "runserver_worker",
    }
    of_migrations = {"migration_lock_timeout", "drop_waiting_jobs", "stop_older_workers"}
    assert set(given) == {field.name for field in fields(conf.Settings)} - of_the_process - of_migrations
