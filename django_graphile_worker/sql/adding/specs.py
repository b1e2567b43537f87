"""Specs as JSON, for the functions of the schema that take many."""

from __future__ import annotations

from datetime import timedelta
from json.encoder import encode_basestring as quoted

from django_graphile_worker.jobs import JobSpec

# A spec, and its payload as JSON text.
Entry = tuple[JobSpec, str]


def element(spec: JobSpec, payload: str) -> str:
    """Return a spec as JSON, with its payload unchanged, and without the options that the spec leaves out."""
    parts = [f'"i":{quoted(spec.identifier)}', f'"p":{payload}']
    if spec.queue_name is not None:
        parts.append(f'"q":{quoted(spec.queue_name)}')
    if spec.run_at is not None:
        parts.append(_time(spec))
    if spec.max_attempts is not None:
        parts.append(f'"m":{spec.max_attempts}')
    if spec.job_key is not None:
        parts.append(f'"k":{quoted(spec.job_key)}')
    if spec.priority is not None:
        parts.append(f'"r":{spec.priority}')
    if spec.flags is not None:
        parts.append(f'"f":[{",".join(map(quoted, spec.flags))}]')
    return "{" + ",".join(parts) + "}"


def _time(spec: JobSpec) -> str:
    run_at = spec.run_at
    if isinstance(run_at, timedelta):
        return f'"d":{run_at.total_seconds()!r}'
    return f'"t":"{run_at.isoformat()}"' if run_at is not None else '"t":null'
