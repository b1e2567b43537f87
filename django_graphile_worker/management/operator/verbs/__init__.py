"""The verbs of ``manage.py graphile_worker``: a module for each. ``VERBS`` has the order of the overview.

A verb parses its options, calls the API or ``sql.inspection``, and writes to a ``Console``. Verbs do not import each
other; code that several verbs use is in ``management.operator``.
"""

from __future__ import annotations

from django_graphile_worker.management.operator.verb import Verb
from django_graphile_worker.management.operator.verbs.add import Add
from django_graphile_worker.management.operator.verbs.cancel import Cancel
from django_graphile_worker.management.operator.verbs.cleanup import Cleanup
from django_graphile_worker.management.operator.verbs.complete import Complete
from django_graphile_worker.management.operator.verbs.crontab import Crontab
from django_graphile_worker.management.operator.verbs.errors import Errors
from django_graphile_worker.management.operator.verbs.events import Events
from django_graphile_worker.management.operator.verbs.fail import Fail
from django_graphile_worker.management.operator.verbs.grants import Grants
from django_graphile_worker.management.operator.verbs.history import History
from django_graphile_worker.management.operator.verbs.import_celery_beat import ImportCeleryBeat
from django_graphile_worker.management.operator.verbs.jobs import Jobs
from django_graphile_worker.management.operator.verbs.limits import Limits
from django_graphile_worker.management.operator.verbs.pause import Pause
from django_graphile_worker.management.operator.verbs.queues import Queues
from django_graphile_worker.management.operator.verbs.remove import Remove
from django_graphile_worker.management.operator.verbs.repair import Repair
from django_graphile_worker.management.operator.verbs.reschedule import Reschedule
from django_graphile_worker.management.operator.verbs.result import ShowResult
from django_graphile_worker.management.operator.verbs.resume import Resume
from django_graphile_worker.management.operator.verbs.retry import Retry
from django_graphile_worker.management.operator.verbs.run import Run
from django_graphile_worker.management.operator.verbs.run_next import RunNext
from django_graphile_worker.management.operator.verbs.run_now import RunNow
from django_graphile_worker.management.operator.verbs.schedules import Schedules
from django_graphile_worker.management.operator.verbs.show import Show
from django_graphile_worker.management.operator.verbs.status import Status
from django_graphile_worker.management.operator.verbs.sweep import Sweep
from django_graphile_worker.management.operator.verbs.tasks import Tasks
from django_graphile_worker.management.operator.verbs.unlock import Unlock
from django_graphile_worker.management.operator.verbs.workers import Workers

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
