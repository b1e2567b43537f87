"""Jobs that a recovery ended: their worker died under them once too often, and no attempt is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings

from django_graphile_worker.exceptions import WorkerDiedError
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.jobs import JOB_COLUMNS, jobs_from
from django_graphile_worker.sql.naive import with_naive_times
from django_graphile_worker.sql.schema import statement

EXHAUSTED_JOBS = f"""/* gw:exhausted */
select {JOB_COLUMNS} from :SCHEMA._private_jobs as job where job.id = any (%(ids)s::bigint[]) order by job.id"""


class Hold(NamedTuple):
    """Who held a job, from when, and for how many seconds."""

    locked_by: str
    locked_at: datetime
    seconds: float


class Exhausted(NamedTuple):
    """A job that will not be tried again, and how long the dead worker had it."""

    job: Job
    seconds: float

    @property
    def error(self) -> WorkerDiedError:
        return WorkerDiedError(self.job.last_error)


def exhausted_jobs(cursor: Any, holds: Mapping[int, Hold], *, schema: str) -> tuple[Exhausted, ...]:
    """The jobs behind these ids, as they were held; reads nothing when there are none."""
    if not holds:
        return ()
    cursor.execute(statement(EXHAUSTED_JOBS, schema), {"ids": list(holds)})
    found = jobs_from(cursor, cursor.fetchall(), schema=schema)
    return tuple(_exhausted(job, holds[job.id]) for job in found)


def _exhausted(job: Job, hold: Hold) -> Exhausted:
    held = dataclasses.replace(job, locked_by=hold.locked_by, locked_at=hold.locked_at)
    return Exhausted(held if settings.USE_TZ else with_naive_times(held), max(hold.seconds, 0.0))
