"""Specs as JSON, for the functions of the schema, and as the jobs that were added for them."""

from __future__ import annotations

from datetime import datetime, timedelta
from json.encoder import encode_basestring as quoted

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.job_options import DEFAULT_MAX_ATTEMPTS
from django_graphile_worker.jobs import Job, JobSpec

# A spec, and its payload as JSON text.
Entry = tuple[JobSpec, str]

_NO_FLAGS: frozenset[str] = frozenset()


def element(spec: JobSpec, payload: str) -> str:
    """Return a spec as JSON, with its payload unchanged, and without the options that the spec leaves out."""
    parts = [f'"i":{quoted(spec.identifier)}', f'"p":{payload}']
    if spec.queue_name is not None:
        parts.append(f'"q":{quoted(spec.queue_name)}')
    if isinstance(spec.run_at, timedelta):
        parts.append(f'"d":{spec.run_at.total_seconds()!r}')
    elif spec.run_at is not None:
        parts.append(f'"t":"{spec.run_at.isoformat()}"')
    if spec.max_attempts is not None:
        parts.append(f'"m":{spec.max_attempts}')
    if spec.job_key is not None:
        parts.append(f'"k":{quoted(spec.job_key)}')
    if spec.priority is not None:
        parts.append(f'"r":{spec.priority}')
    if spec.flags is not None:
        parts.append(f'"f":[{",".join(map(quoted, spec.flags))}]')
    return "{" + ",".join(parts) + "}"


def new_job(spec: JobSpec, payload: str, job_id: int, now: datetime, run_at: datetime) -> Job:
    """Return the job that was inserted for a spec without a key; its payload is decoded when it is first read."""
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


def not_inserted(schema: str) -> SchemaError:
    """Return the error for a spec for which no row came back."""
    return SchemaError(
        f"The database returned no job. Either the functions in the schema {schema!r} are those of another program: "
        'run "manage.py graphile_worker repair". Or a trigger on its table of jobs keeps rows from being inserted: '
        "drop it."
    )
