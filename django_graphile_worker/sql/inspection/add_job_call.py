"""The SQL call of ``add_job`` that would add a given job again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django_graphile_worker.sql.statements import literal, quoted


def add_job_call(
    identifier: str,
    payload_text: str,
    *,
    schema: str,
    queue_name: str | None,
    run_at: datetime | None,
    max_attempts: int,
    job_key: str | None,
    priority: int,
    flags: Sequence[str],
) -> str:
    """Return a statement for psql that adds the job, with the arguments that are not the default."""
    arguments = [literal(identifier).strip(), f"payload => {literal(payload_text).strip()}"]
    if queue_name is not None:
        arguments.append(f"queue_name => {literal(queue_name).strip()}")
    if run_at is not None:
        arguments.append(f"run_at => {literal(run_at.isoformat()).strip()}")
    if max_attempts != 25:
        arguments.append(f"max_attempts => {max_attempts}")
    if job_key is not None:
        arguments.append(f"job_key => {literal(job_key).strip()}")
    if priority:
        arguments.append(f"priority => {priority}")
    if flags:
        arguments.append(f"flags => array[{', '.join(literal(flag).strip() for flag in flags)}]")
    body = ",\n  ".join(arguments)
    return f"select {quoted(schema)}.add_job(\n  {body}\n);"
