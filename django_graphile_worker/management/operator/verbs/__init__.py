"""All verbs, in the order in which the overview tells them."""

from __future__ import annotations

from django_graphile_worker.management.operator.verb import Verb
from django_graphile_worker.management.operator.verbs.add import Add
from django_graphile_worker.management.operator.verbs.change import Complete, Fail, Remove, Reschedule
from django_graphile_worker.management.operator.verbs.cleanup import Cleanup
from django_graphile_worker.management.operator.verbs.crontab import Crontab
from django_graphile_worker.management.operator.verbs.errors import Errors, Retry
from django_graphile_worker.management.operator.verbs.grants import Grants
from django_graphile_worker.management.operator.verbs.jobs import Jobs, Show
from django_graphile_worker.management.operator.verbs.recovery import Sweep, Unlock
from django_graphile_worker.management.operator.verbs.repair import Repair
from django_graphile_worker.management.operator.verbs.run import Run
from django_graphile_worker.management.operator.verbs.status import ShowStatus
from django_graphile_worker.management.operator.verbs.tasks import Tasks
from django_graphile_worker.management.operator.verbs.workers import Queues, Workers

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
