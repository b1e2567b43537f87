"""All verbs, in the order in which the overview tells them."""

from __future__ import annotations

from django_graphile_worker.management.operator.adding import Add
from django_graphile_worker.management.operator.changing import Complete, Fail, Remove, Reschedule
from django_graphile_worker.management.operator.crontabs import Crontab
from django_graphile_worker.management.operator.errors import Errors, Retry
from django_graphile_worker.management.operator.fleet import Queues, Workers
from django_graphile_worker.management.operator.granting import Grants
from django_graphile_worker.management.operator.health import ShowStatus
from django_graphile_worker.management.operator.listing import Jobs, Show
from django_graphile_worker.management.operator.maintenance import Cleanup
from django_graphile_worker.management.operator.repairing import Repair
from django_graphile_worker.management.operator.rescue import Sweep, Unlock
from django_graphile_worker.management.operator.running import Run
from django_graphile_worker.management.operator.tasks import Tasks
from django_graphile_worker.management.operator.verb import Verb

VERBS: tuple[Verb, ...] = (
    Run(),
    ShowStatus(),
    Jobs(),
    Show(),
    Tasks(),
    Errors(),
    Retry(),
    Add(),
    Complete(),
    Fail(),
    Reschedule(),
    Remove(),
    Workers(),
    Queues(),
    Crontab(),
    Unlock(),
    Sweep(),
    Cleanup(),
    Repair(),
    Grants(),
)

BY_NAME = {name: verb for verb in VERBS for name in (verb.name, *verb.aliases)}
