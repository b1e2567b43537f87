"""Jobs that a recovery has permanently failed: their workers died too often, and no attempt is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings

from django_graphile_worker.exceptions import WorkerDiedError
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.codecs import with_naive_times
from django_graphile_worker.sql.jobs import JOB_COLUMNS, jobs_from
from django_graphile_worker.sql.schema import statement

EXHAUSTED_JOBS = f"""/* gw:exhausted */
select {JOB_COLUMNS} from :SCHEMA._private_jobs as job where job.id = any (%(ids)s::bigint[]) order by job.id"""


class Hold(NamedTuple):
    """The worker that held a job, since when, and for how many seconds; columns of the statement that recovers jobs."""

    locked_by: str
    locked_at: datetime
    seconds: float


class Exhausted(Frozen):
    """A job that has no attempt left, and for how many seconds the dead worker held it."""

    job: Job
    seconds: float

    @property
    def error(self) -> WorkerDiedError:
        name, _, message = (self.job.last_error or "").partition(": ")
        return WorkerDiedError(message or name)


def exhausted_jobs(cursor: Any, holds: Mapping[int, Hold], *, schema: str) -> tuple[Exhausted, ...]:
    """Return the jobs with these ids as they were while a worker held them; send no statement if there are none."""
    if not holds:
        return ()
    cursor.execute(statement(EXHAUSTED_JOBS, schema), {"ids": list(holds)})
    found = jobs_from(cursor, cursor.fetchall(), schema=schema)
    return tuple(_exhausted(job, holds[job.id]) for job in found)


def _exhausted(job: Job, hold: Hold) -> Exhausted:
    held = dataclasses.replace(job, locked_by=hold.locked_by, locked_at=hold.locked_at)
    return Exhausted(job=held if settings.USE_TZ else with_naive_times(held), seconds=max(hold.seconds, 0.0))
