"""Writes the Python and the SQL code that adds a job again."""

from __future__ import annotations

import pprint
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.jobs.detail.payload_tree import to_json
from django_graphile_worker.admin.jobs.states import flag_names
from django_graphile_worker.job_flags import without_run_flags
from django_graphile_worker.job_options import OPTIONS
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.redaction import HIDDEN
from django_graphile_worker.sql.inspection.job_detail import MAX_PAYLOAD, JobDetail, add_job_call
from django_graphile_worker.sql.inspection.job_search.criteria import State


def add_job_code(job: JobDetail, *, sees_payload: bool) -> dict[str, str]:
    """Return the code as "python" and "sql", with HIDDEN in place of a payload that the user may not see.

    Return nothing when the payload cannot be written as code, or the task is unknown.
    """
    is_whole = len(job.payload_text) < MAX_PAYLOAD
    value = decode_leniently(job.payload_text) if is_whole else RawPayload("")
    if isinstance(value, RawPayload) or not job.task_identifier:
        return {}
    value = value if sees_payload else HIDDEN
    try:
        json_text, python_text = to_json(value), pprint.pformat(value, width=88, sort_dicts=False)
    except (ValueError, RecursionError):
        return {}
    options, schema = _options(job), conf.current().schema
    return {
        "python": _python(job.task_identifier, python_text, options),
        "sql": add_job_call(job.task_identifier, json_text, options, schema=schema),
    }


def _options(job: JobDetail) -> dict[str, Any]:
    """Return the options that add the job again, without those that have their defaults."""
    values = {
        "queue_name": job.queue_name,
        "run_at": future_run_at(job),
        "max_attempts": job.max_attempts,
        "job_key": job.key,
        "priority": job.priority,
        # The code adds another job, which is not the run of a schedule.
        "flags": without_run_flags(flag_names(job.flags_text)) or OPTIONS["flags"].default,
    }
    return {name: value for name, value in values.items() if value is not None and value != OPTIONS[name].default}


def future_run_at(job: JobDetail) -> datetime | None:
    """Return the time of a scheduled job; None for all others, and for times that Python cannot represent.

    The time of a job that has failed is that of its next attempt, which a new job does not wait for.
    """
    is_later = job.state is State.SCHEDULED and formatting.EARLIEST < job.run_at < formatting.LATEST
    return job.run_at if is_later else None


def _python(task: str, payload: str, options: Mapping[str, Any]) -> str:
    arguments = [repr(task), payload]
    imports = ["from django_graphile_worker import add_job"]
    for name, value in options.items():
        if isinstance(value, datetime):
            imports.insert(0, "from datetime import datetime")
            arguments.append(f"{name}=datetime.fromisoformat({value.isoformat()!r})")
        else:
            arguments.append(f"{name}={value!r}")
    body = ",\n".join("    " + argument.replace("\n", "\n    ") for argument in arguments)
    return "\n".join([*imports, "", f"add_job(\n{body},\n)"])
