"""The verbs of ``manage.py graphile_worker``: a module for each subject. ``VERBS`` has the order of the overview.

A verb parses its options, calls the API or ``sql.inspection``, and writes to a ``Console``. Code that verbs
of several modules use is in ``management.operator``.
"""

from __future__ import annotations

from django_graphile_worker.management.operator.verb import Verb
from django_graphile_worker.management.operator.verbs.crontab import Crontab
from django_graphile_worker.management.operator.verbs.ended_jobs import History, ShowResult
from django_graphile_worker.management.operator.verbs.import_celery_beat import ImportCeleryBeat
from django_graphile_worker.management.operator.verbs.job_changes import (
    Add,
    Cancel,
    Complete,
    Fail,
    Remove,
    Reschedule,
    Retry,
    RunNext,
    RunNow,
)
from django_graphile_worker.management.operator.verbs.jobs import Errors, Jobs, Show
from django_graphile_worker.management.operator.verbs.limits import Limits
from django_graphile_worker.management.operator.verbs.maintenance import Cleanup, Grants, Repair
from django_graphile_worker.management.operator.verbs.queues import Pause, Queues, Resume
from django_graphile_worker.management.operator.verbs.schedules import Schedules
from django_graphile_worker.management.operator.verbs.status import Events, Status
from django_graphile_worker.management.operator.verbs.tasks import Tasks
from django_graphile_worker.management.operator.verbs.workers import Run, Sweep, Unlock, Workers

VERBS: tuple[Verb, ...] = (
    Run(),
    Status(),
    Jobs(),
    Show(),
    ShowResult(),
    History(),
    Tasks(),
    Errors(),
    RunNow(),
    RunNext(),
    Retry(),
    Add(),
    Cancel(),
    Complete(),
    Fail(),
    Reschedule(),
    Remove(),
    Workers(),
    Events(),
    Queues(),
    Pause(),
    Resume(),
    Limits(),
    Crontab(),
    Schedules(),
    ImportCeleryBeat(),
    Unlock(),
    Sweep(),
    Cleanup(),
    Repair(),
    Grants(),
)

BY_NAME = {name: verb for verb in VERBS for name in (verb.name, *verb.aliases)}
