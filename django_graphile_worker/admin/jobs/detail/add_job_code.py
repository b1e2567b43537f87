"""Writes the Python and the SQL code that adds a job again."""

from __future__ import annotations

import pprint
from collections.abc import Sequence
from datetime import datetime

from django_graphile_worker import conf
from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.jobs.detail.payload_tree import to_json
from django_graphile_worker.admin.jobs.states import flag_names
from django_graphile_worker.job_flags import without_run_flags
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.redaction import HIDDEN
from django_graphile_worker.sql.inspection.add_job_call import add_job_call
from django_graphile_worker.sql.inspection.job_detail import LONGEST_PAYLOAD, JobDetail
from django_graphile_worker.sql.inspection.job_search.criteria import State

DEFAULT_MAX_ATTEMPTS = 25


def add_job_code(job: JobDetail, *, sees_payload: bool) -> dict[str, str]:
    """Return the code as "python" and "sql", with HIDDEN in place of a payload that the user may not see.

    Return nothing when the payload cannot be written as code, or the task is unknown.
    """
    is_whole = len(job.payload_text) < LONGEST_PAYLOAD
    value = decode_leniently(job.payload_text) if is_whole else RawPayload("")
    if isinstance(value, RawPayload) or not job.task_identifier:
        return {}
    value = value if sees_payload else HIDDEN
    try:
        json_text, python_text = to_json(value), pprint.pformat(value, width=88, sort_dicts=False)
    except (ValueError, RecursionError):
        return {}
    # The code adds another job, which is not the run of a schedule.
    run_at, flags = future_run_at(job), without_run_flags(flag_names(job.flags_text))
    return {
        "python": _python(job, job.task_identifier, python_text, run_at, flags),
        "sql": _sql(job, job.task_identifier, json_text, run_at, flags),
    }


def future_run_at(job: JobDetail) -> datetime | None:
    """Return the time of a scheduled job; None for all others, and for times that Python cannot represent.

    The time of a job that has failed is that of its next attempt, which a new job does not wait for.
    """
    is_later = job.state is State.SCHEDULED and formatting.EARLIEST < job.run_at < formatting.LATEST
    return job.run_at if is_later else None


def _sql(job: JobDetail, task: str, payload: str, run_at: datetime | None, flags: Sequence[str]) -> str:
    return add_job_call(
        task,
        payload,
        schema=conf.current().schema,
        queue_name=job.queue_name,
        run_at=run_at,
        max_attempts=job.max_attempts,
        job_key=job.key,
        priority=job.priority,
        flags=flags,
    )


def _python(job: JobDetail, task: str, payload: str, run_at: datetime | None, flags: Sequence[str]) -> str:
    arguments = [repr(task), payload]
    options = {
        "queue_name": job.queue_name,
        "max_attempts": job.max_attempts if job.max_attempts != DEFAULT_MAX_ATTEMPTS else None,
        "job_key": job.key,
        "priority": job.priority or None,
        "flags": flags or None,
    }
    arguments += [f"{name}={value!r}" for name, value in options.items() if value is not None]
    imports = ["from django_graphile_worker import add_job"]
    if run_at is not None:
        imports.insert(0, "from datetime import datetime")
        arguments.append(f"run_at=datetime.fromisoformat({run_at.isoformat()!r})")
    body = ",\n".join("    " + argument.replace("\n", "\n    ") for argument in arguments)
    return "\n".join([*imports, "", f"add_job(\n{body},\n)"])
