"""The kinds of events, their groups, and the function that describes each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

from django.utils.translation import gettext_lazy

from django_graphile_worker.event_texts import database, work, workers
from django_graphile_worker.event_texts.sentence import Facts, Sentence, Style
from django_graphile_worker.sql.inspection.events import LoggedEvent

KINDS: MappingProxyType[str, Callable[[Facts], Iterator[Sentence]]] = MappingProxyType(
    {
        "worker_started": workers.started,
        "worker_stopped": workers.stopped,
        "worker_lost": workers.lost,
        "worker_returned": workers.returned,
        "jobs_recovered": workers.recovered,
        "process_replaced": workers.replaced,
        "schedule_missed": work.schedule_missed,
        "schedule_backfilled": work.schedule_backfilled,
        "schedule_paused": work.schedule_paused,
        "schedule_resumed": work.schedule_resumed,
        "work_paused": work.paused,
        "work_resumed": work.resumed,
        "limit_changed": work.limit_changed,
        "limit_reset": work.limit_reset,
        "stale_locks_released": work.stale_locks_released,
        "force_unlocked": work.force_unlocked,
        "tasks_unserved": database.tasks_unserved,
        "indexes_missed": database.indexes_missed,
        "schema_refused": database.schema_refused,
        "database_lost": database.database_lost,
    }
)

# The groups of the filter: their labels and kinds.
GROUPS = MappingProxyType(
    {
        "workers": (
            gettext_lazy("Workers"),
            (
                "worker_started",
                "worker_stopped",
                "worker_lost",
                "worker_returned",
                "jobs_recovered",
                "process_replaced",
            ),
        ),
        "schedules": (
            gettext_lazy("Schedules"),
            ("schedule_missed", "schedule_backfilled", "schedule_paused", "schedule_resumed"),
        ),
        "control": (
            gettext_lazy("Pauses, limits and locks"),
            ("work_paused", "work_resumed", "limit_changed", "limit_reset", "stale_locks_released", "force_unlocked"),
        ),
        "database": (
            gettext_lazy("Database"),
            ("database_lost", "indexes_missed", "schema_refused", "tasks_unserved"),
        ),
    }
)


def describe(event: LoggedEvent, style: Style) -> list[Sentence]:
    """Return the sentences that tell the event. A kind that this version does not know is shown by its name."""
    write = KINDS.get(event.kind)
    if write is None:
        return [Sentence("%(kind)s: %(subject)s", {"kind": event.kind, "subject": event.subject})]
    return list(write(Facts(event, style)))
