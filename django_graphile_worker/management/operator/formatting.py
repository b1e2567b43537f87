"""Formats jobs as a line, as a table cell and as JSON, and numbers with their nouns."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from django.core.management.color import Style

from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import times
from django_graphile_worker.management.operator.tables import Cell
from django_graphile_worker.registry import label_of
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.inspection.job_detail import JobDetail
from django_graphile_worker.sql.inspection.job_search.counts import Count
from django_graphile_worker.sql.inspection.job_search.criteria import State
from django_graphile_worker.sql.inspection.job_search.search import JobRow
from django_graphile_worker.text import shown


def job_line(job: Job, now: datetime) -> str:
    """Return ``send_receipt #42: run at 2026-05-01 12:00:00 (in 5 m), 0 of 25 attempts used``."""
    parts = [f"run at {times.both(job.run_at, now)}", f"{job.attempts} of {job.max_attempts} attempts used"]
    parts += [f"queue {shown(job.queue_name)}"] if job.queue_name else []
    parts += [f"key {shown(job.key)}"] if job.key else []
    return f"{shown(job.task_identifier)} #{job.id}: {', '.join(parts)}"


def job_as_dict(job: Job) -> dict[str, Any]:
    """Return a job from the API as a dict for JSON."""
    return dataclasses.asdict(job)


def job_row_as_dict(job: JobRow | JobDetail) -> dict[str, Any]:
    """Return a job from ``sql.inspection`` as a dict for JSON, without the payload, which may be large."""
    return {
        "id": job.id,
        "state": job.state.value,
        "task_identifier": job.task_identifier or "",
        "label": label_of(job.task_identifier or ""),
        "queue_name": job.queue_name,
        "priority": job.priority,
        "run_at": job.run_at,
        "attempts": job.attempts,
        "attempts_made": job.attempts_made,
        "max_attempts": job.max_attempts,
        "key": job.key,
        "flags": flags_from(job.flags_text),
        "locked_at": job.locked_at,
        "locked_by": job.locked_by,
        "last_error": job.error if isinstance(job, JobRow) else job.last_error,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def state_cell(state: State, style: Style) -> Cell:
    """Return the state of a job in its colour."""
    paints = {
        State.RUNNING: style.MIGRATE_LABEL,
        State.READY: style.SUCCESS,
        State.LIMITED: style.WARNING,
        State.RETRYING: style.WARNING,
        State.FAILED: style.ERROR,
    }
    return Cell(state.value, paints.get(state))


def counted(number: int, noun: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def capped(count: Count) -> str:
    """Return ``42``, or ``10000+`` if the count stopped before the end."""
    return f"{count.number}{'+' if count.is_more else ''}"
