"""The lines about pauses, about missed ticks of recurring tasks, and about jobs that expired."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django_graphile_worker.jobs import Job
from django_graphile_worker.logs import schedule_lines
from django_graphile_worker.logs.lines import JobFacts, job_attributes, with_place, write
from django_graphile_worker.text import shown

_jobs = logging.getLogger("django_graphile_worker.jobs")
_cron = logging.getLogger("django_graphile_worker.cron")
_worker = logging.getLogger("django_graphile_worker.worker")

# The attributes of records: each record has an attribute of its own that is called name.
_ATTRIBUTES = {"queue": "queue_name", "task": "task_identifier", "flag": "flag"}


def work_changed(change: str) -> Callable[..., None]:
    """Return a receiver that writes what was paused or resumed, until when, by whom and why."""

    def receiver(*, until: datetime | None = None, by: str = "", reason: str = "", **arguments: Any) -> None:
        arguments[_ATTRIBUTES.get(arguments.get("kind", ""), "flag")] = arguments.get("name")
        line = f"{change} the %(kind)s %(name)s"
        if change == "paused":
            line += " until it is resumed" if until is None else " until %(until)s"
        line += (", by %(by)s" if by else "") + (": %(reason)s" if reason and change == "paused" else "")
        write(_worker, logging.INFO, line, {"until": until, "by": by, "reason": reason, **arguments})

    return receiver


def cron_missed(**arguments: Any) -> None:
    line = "cron missed %(number)s ticks of %(identifier)s, from %(first_tick)s to %(last_tick)s: no worker fired them"
    write(_cron, logging.WARNING, line, arguments)


def job_expired(*, job: Job | JobFacts, expires_at: datetime | None = None, **about: Any) -> None:
    if _jobs.isEnabledFor(logging.WARNING):
        template, place = with_place("%s #%s expired: it was not started by %s", about)
        extra = job_attributes(job, "expired", about) | {"expires_at": str(expires_at)}
        _jobs.warning(template, *place, shown(job.task_identifier), job.id, expires_at, extra=extra)


RECEIVERS: dict[str, Callable[..., None]] = {
    "job_expired": job_expired,
    "work_paused": work_changed("paused"),
    "work_resumed": work_changed("resumed"),
    "cron_missed": cron_missed,
    **schedule_lines.RECEIVERS,
}
