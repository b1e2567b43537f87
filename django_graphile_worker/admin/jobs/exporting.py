"""The export of a list of jobs as a file.

The ids of the jobs are read in one snapshot. The rest is read step by step, each step in a transaction of its own: one
that stays open while a file is downloaded would keep the rows of all jobs that end meanwhile.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.export import file_response
from django_graphile_worker.admin.jobs.change_list import JobChangeList
from django_graphile_worker.admin.jobs.job_pages import JobPageAdmin
from django_graphile_worker.admin.jobs.states import flag_names
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.job_flags import headers_in, without_headers
from django_graphile_worker.models import Job
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.redaction import HIDDEN, redact, redact_text
from django_graphile_worker.sql.inspection import job_detail, job_list

STEP = 500
COLUMNS = (
    "id", "task", "state", "queue", "priority", "attempts", "max_attempts", "run_at", "created_at", "updated_at",
    "locked_at", "worker", "key", "flags", "error",
)  # fmt: skip
PAYLOAD_COLUMNS = ("headers", "payload", "payload_is_left_out")
# Of an error that is redacted, the file has so many characters.
MAX_ERROR = 500


class JobExportAdmin(JobPageAdmin):
    """The export of jobs: exactly those that the list has, and that the user may see."""

    @explain_database_errors
    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        self.require(self.has_view_permission(request))
        try:
            jobs: JobChangeList = self.get_changelist_instance(request)  # type: ignore[assignment]
        except IncorrectLookupParameters:
            return HttpResponseRedirect(self.url(request, "job"))
        if jobs.search.errors:
            messages.error(
                request, " ".join([_("Nothing was exported: the search has an error."), *jobs.search.errors])
            )
            return HttpResponseRedirect(self.url(request, "job", q=jobs.query, state=request.GET.get("state")))
        sees_payloads = self.has_view_payload_permission(request)
        return file_response(
            request,
            read_jobs(jobs.alias, jobs.all_ids(), sees_payloads=sees_payloads),
            COLUMNS + PAYLOAD_COLUMNS if sees_payloads else COLUMNS,
            name="jobs",
            model=Job,
            description=jobs.description(),
        )


def read_jobs(alias: str, ids: array[int], *, sees_payloads: bool) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the jobs with these ids that still exist, some at a time."""
    for start in range(0, len(ids) or 1, STEP):
        part = list(ids[start : start + STEP])
        with databases.reading(alias) as (cursor, schema):
            rows = job_list.rows(cursor, part, schema=schema)
            payloads = job_detail.whole_payloads(cursor, part, schema=schema) if sees_payloads else {}
            errors = {} if sees_payloads else job_list.long_errors(cursor, part, schema=schema)
        if not sees_payloads:
            rows = [row._replace(error=_redacted_error(errors.get(row.id))) for row in rows]
        yield [_row(row, payloads, sees_payloads=sees_payloads) for row in rows]


def _redacted_error(error: str | None) -> str | None:
    return None if error is None else redact_text(error)[:MAX_ERROR]


def _row(row: job_list.JobRow, payloads: dict[int, str | None], *, sees_payloads: bool) -> dict[str, Any]:
    flags = flag_names(row.flags_text)
    exported = {
        "id": row.id,
        "task": row.task_identifier,
        "state": row.state.value,
        "queue": row.queue_name,
        "priority": row.priority,
        "attempts": row.attempts_made,
        "max_attempts": row.max_attempts,
        "run_at": row.run_at,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "locked_at": row.locked_at,
        "worker": row.locked_by,
        "key": row.key,
        "flags": json.dumps(dict.fromkeys(without_headers(flags), True)) if row.flags_text else None,
        "error": row.error,
    }
    if not sees_payloads:
        return exported
    return exported | {"headers": redact(headers_in(flags))} | _payload(payloads.get(row.id))


def _payload(text: str | None) -> dict[str, Any]:
    """Return the payload with the values of secret keys hidden: a file is passed on more easily than a page."""
    if text is None:
        return {"payload": None, "payload_is_left_out": True}
    value = decode_leniently(text)
    shown = HIDDEN if isinstance(value, RawPayload) else redact(value)
    return {"payload": shown, "payload_is_left_out": isinstance(value, RawPayload)}
