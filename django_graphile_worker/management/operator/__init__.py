"""The verbs of ``manage.py graphile_worker``, in the order of its overview: a module for each subject.

``verb.py`` has their base class and their parser, ``console.py`` the output and the database of a verb, and
``formatting.py`` formats results. The folder may import all layers below ``management``, also the worker. Start reading
with ``jobs.py``.
"""

from __future__ import annotations

from django_graphile_worker.management.operator.actions import ACTIONS, Add
from django_graphile_worker.management.operator.alerts import Alerts
from django_graphile_worker.management.operator.doctor import Doctor
from django_graphile_worker.management.operator.jobs import Errors, History, Jobs, Show
from django_graphile_worker.management.operator.maintenance import Cleanup, Grants, Repair
from django_graphile_worker.management.operator.queues import Limits, Pause, Queues, Resume
from django_graphile_worker.management.operator.schedules import Schedules
from django_graphile_worker.management.operator.status import Events, Status, Tasks
from django_graphile_worker.management.operator.verb import Verb
from django_graphile_worker.management.operator.workers import Sweep, Unlock, Workers

VERBS: tuple[Verb, ...] = (
    Status(),
    Jobs(),
    Show(),
    History(),
    Errors(),
    Tasks(),
    Queues(),
    Workers(),
    Events(),
    Alerts(),
    Add(),
    *ACTIONS,
    Pause(),
    Resume(),
    Limits(),
    Schedules(),
    Sweep(),
    Unlock(),
    Cleanup(),
    Doctor(),
    Repair(),
    Grants(),
)
