"""The lines about schedules of the database."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django_graphile_worker.logs.lines import write

_cron = logging.getLogger("django_graphile_worker.cron")


def _line(level: int, template: str) -> Callable[..., None]:
    """Return a receiver. Each record has an attribute of its own that is called name."""

    def receiver(**arguments: Any) -> None:
        write(_cron, level, template, {**arguments, "schedule_name": arguments.get("name")})

    return receiver


def _missed(**arguments: Any) -> None:
    single = "schedule %(name)s missed the tick of %(first_tick)s: no worker fired it"
    several = "schedule %(name)s missed %(number)s ticks, from %(first_tick)s to %(last_tick)s: no worker fired them"
    _line(logging.WARNING, single if arguments.get("number") == 1 else several)(**arguments)


RECEIVERS: dict[str, Callable[..., None]] = {
    "schedule_tasks_not_found": _line(
        logging.WARNING, "schedules have tasks that this project does not have, and are not fired here: %(tasks)s"
    ),
    "schedule_names_taken": _line(
        logging.WARNING, "@task(every=...) is not fired: schedules of the database have the names of tasks: %(names)s"
    ),
    "schedule_fired": _line(logging.INFO, "schedule %(name)s added jobs of %(task)s: %(job_ids)s, for %(ticks)s"),
    "schedule_skipped": _line(
        logging.INFO, "schedule %(name)s added no job of %(task)s for %(ticks)s: the last run is not over"
    ),
    "schedule_missed": _missed,
}
