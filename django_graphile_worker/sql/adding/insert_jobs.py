"""Add jobs without a key. The modules ``add_job`` and ``add_jobs`` call it, and add jobs with a key themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import Error

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.job_options import DEFAULT_MAX_ATTEMPTS
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.sql.codecs import int_array, text_array
from django_graphile_worker.sql.function_calls import MOMENT, moment
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

# PostgreSQL parses and plans these statements for every call, so they are as short as possible. The parameters need no
# types: a function of the worker schema takes them, and there is one of this name.
INSERT_JOB = "/* gw:add_job */ select :SCHEMA._private_insert_job_v1(%s, %s, %s), now()"
# A procedure can end a transaction only if no other statement belongs to it.
INSERT_JOB_ALONE = "/* gw:add_job */ call :SCHEMA._private_insert_job_and_notify_v3(%s, %s, null, null, null)"
NOTIFY_TOGETHER = "/* gw:notify_together */ select :SCHEMA._private_notify_together_v2()"
INSERT_JOB_WITH_OPTIONS = f"""/* gw:add_job */
    select :SCHEMA._private_insert_job_with_options_v1(%s, %s, %s, {MOMENT}, %s, %s, %s, %s), now(), {MOMENT}"""


def insert_job(
    cursor: Cursor, spec: JobSpec, payload: str, *, schema: str, notify: bool = True, alone: bool = False
) -> Job:
    """Add a job without a key; ``payload`` is the payload of the spec as JSON text.

    ``alone`` says that there is no transaction around the call: then the job is committed before the notification.
    """
    run_at = None
    if has_options(spec):
        cursor.execute(statement(INSERT_JOB_WITH_OPTIONS, schema), _parameters(spec, payload, notify))
        job_id, now, run_at = cursor.fetchone()
    elif alone and notify:
        cursor.execute(statement(INSERT_JOB_ALONE, schema), (spec.identifier, payload))
        job_id, now, is_notified = cursor.fetchone()
        if not is_notified:
            _notify(cursor, schema)
    else:
        cursor.execute(statement(INSERT_JOB, schema), (spec.identifier, payload, not notify))
        job_id, now = cursor.fetchone()
    if job_id is None:
        raise _not_inserted(schema)
    return inserted_job(spec, payload, job_id, now, run_at or now)


def _notify(cursor: Cursor, schema: str) -> None:
    """Notify workers of a job that is committed. If the database does not, they find the job when they poll."""
    with suppress(Error):
        cursor.execute(statement(NOTIFY_TOGETHER, schema))


def has_options(spec: JobSpec) -> bool:
    """Return whether a job without a key differs from the defaults of the table in more than task and payload."""
    return not (
        spec.queue_name is None
        and spec.run_at is None
        and spec.max_attempts is None
        and spec.priority is None
        and not spec.flags
    )


def _parameters(spec: JobSpec, payload: str, notify: bool) -> tuple[Any, ...]:
    run_at = moment(spec.run_at)
    return (
        spec.identifier,
        payload,
        spec.queue_name,
        *run_at,
        DEFAULT_MAX_ATTEMPTS if spec.max_attempts is None else spec.max_attempts,
        spec.priority or 0,
        list(spec.flags or ()),
        not notify,
        *run_at,
    )


def inserted_job(spec: JobSpec, payload: str, job_id: int, now: datetime, run_at: datetime) -> Job:
    """Return the job that was added for a spec; its payload is decoded when it is first read."""
    return Job.of_checked_values(
        {
            "id": job_id,
            "task_identifier": spec.identifier,
            "_json": payload,
            "queue_name": spec.queue_name,
            "priority": spec.priority or 0,
            "run_at": run_at,
            "attempts": 0,
            "max_attempts": spec.max_attempts or DEFAULT_MAX_ATTEMPTS,
            "last_error": None,
            "created_at": now,
            "updated_at": now,
            "key": None,
            "locked_at": None,
            "locked_by": None,
            "revision": 0,
            "flags": frozenset(spec.flags) if spec.flags else _NO_FLAGS,
        }
    )


_NO_FLAGS: frozenset[str] = frozenset()


def _not_inserted(schema: str) -> SchemaError:
    return SchemaError(
        f"add_job: expected the job back, got nothing: a trigger on the table of jobs in the schema {schema!r} keeps "
        "rows from being inserted. Drop the trigger."
    )


INSERT_JOBS = """/* gw:add_jobs */
    select job.ids, job.run_ats, now()
    from :SCHEMA._private_insert_jobs_v1(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) as job"""


class Inserted(NamedTuple):
    """The row of INSERT_JOBS."""

    ids: list[int]
    # None if no spec has a time.
    run_ats: list[datetime] | None
    now: datetime


def insert_jobs_call(
    specs: Sequence[JobSpec],
    payloads: Sequence[str],
    *,
    schema: str,
    notify: bool = True,
    returning: bool = True,
) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that adds jobs without a key, and its parameters. ``inserted_jobs`` reads its row."""
    return statement(INSERT_JOBS, schema), (*_columns(specs, payloads), not notify, returning)


def inserted_jobs(row: tuple[Any, ...], specs: Sequence[JobSpec], payloads: Sequence[str], *, schema: str) -> list[Job]:
    """Return the jobs that the statement of ``insert_jobs_call`` added, in the order of their specs."""
    ids, run_ats, now = Inserted._make(row)
    if len(ids or ()) != len(specs):
        raise _not_inserted(schema)
    if run_ats is None:
        return [inserted_job(*each, now, now) for each in zip(specs, payloads, ids, strict=True)]
    return [
        inserted_job(spec, payload, job_id, now, run_at)
        for spec, payload, job_id, run_at in zip(specs, payloads, ids, run_ats, strict=True)
    ]


def _columns(specs: Sequence[JobSpec], payloads: Sequence[str]) -> tuple[str | None, ...]:
    """Return the columns of the specs as text, None for each column that no spec needs.

    A payload and the flags are a line each: the encoder escapes line breaks. No array has an element that is null:
    a session may have switched them off (array_nulls).
    """
    identifiers, tasks = _places([spec.identifier for spec in specs])
    queue_names, queues = _places([spec.queue_name for spec in specs])
    run_ats = [spec.run_at for spec in specs]
    return (
        text_array(identifiers),
        "\n".join(payloads),
        tasks if len(identifiers) > 1 else None,
        text_array(queue_names) if queue_names else None,
        queues if queue_names else None,
        _lines([run_at.isoformat() if isinstance(run_at, datetime) else "" for run_at in run_ats]),
        _lines([repr(run_at.total_seconds()) if isinstance(run_at, timedelta) else "" for run_at in run_ats]),
        _numbers([spec.max_attempts for spec in specs], DEFAULT_MAX_ATTEMPTS),
        _numbers([spec.priority for spec in specs], 0),
        _lines([flag_object(spec.flags) if spec.flags else "" for spec in specs]),
    )


def _places(names: list[Any]) -> tuple[list[str], str | None]:
    """Return the names without repetitions, and for each name its place among them: the first is 1, and None 0."""
    distinct = [name for name in dict.fromkeys(names) if name is not None]
    if not distinct:
        return distinct, None
    places = {None: 0} | {name: place for place, name in enumerate(distinct, start=1)}
    return distinct, int_array(map(places.__getitem__, names))


def _lines(texts: list[str]) -> str | None:
    return "\n".join(texts) if any(texts) else None


def _numbers(values: list[int | None], default: int) -> str | None:
    if not any(value is not None for value in values):
        return None
    return int_array(default if value is None else value for value in values)


def flag_object(flags: Iterable[str]) -> str:
    """Return flags as the JSON object that the table stores."""
    return "{" + ",".join(f"{quoted(flag)}:true" for flag in flags) + "}"
