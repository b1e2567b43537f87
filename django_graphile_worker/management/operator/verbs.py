"""The verbs of ``manage.py graphile_worker``. ``VERBS`` has the order of the overview."""

from __future__ import annotations

from django_graphile_worker.management.operator.actions import ACTIONS, Add, Cancel
from django_graphile_worker.management.operator.events import Events
from django_graphile_worker.management.operator.jobs import Errors, History, Jobs, Show, ShowResult
from django_graphile_worker.management.operator.maintenance import Cleanup, Grants, Repair
from django_graphile_worker.management.operator.queues import Limits, Pause, Queues, Resume
from django_graphile_worker.management.operator.schedules import Schedules
from django_graphile_worker.management.operator.status import Status, Tasks
from django_graphile_worker.management.operator.verb import Verb
from django_graphile_worker.management.operator.workers import Run, Sweep, Unlock, Workers

VERBS: tuple[Verb, ...] = (
    Run(),
    Status(),
    Jobs(),
    Show(),
    ShowResult(),
    History(),
    Errors(),
    Tasks(),
    Queues(),
    Workers(),
    Events(),
    Add(),
    *ACTIONS,
    Cancel(),
    Pause(),
    Resume(),
    Limits(),
    Schedules(),
    Sweep(),
    Unlock(),
    Cleanup(),
    Repair(),
    Grants(),
)

BY_NAME = {verb.name: verb for verb in VERBS}
