"""For how long the outcome of a run of an item is kept: as long as its next runs take."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.timetable import occurrences
from django_graphile_worker.run_flags import LONGEST_KEEP, RUNS_KEPT, crontab_flag

# To find the next times of a callable, it would have to be called for each minute.
KEEP_OF_CALLABLES = timedelta(days=30)


def flags_of_run(item: CronItem, tick: datetime) -> list[str]:
    """Return the flags of the job of a tick: those of the item, and the flag that has its outcome recorded."""
    if not isinstance(item.match, str):
        return [*(item.flags or ()), crontab_flag(KEEP_OF_CALLABLES)]
    month = tick.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return [*(item.flags or ()), crontab_flag(_keep(item.match, item.zone, month))]


@lru_cache(maxsize=5_000)
def _keep(pattern: str, zone: ZoneInfo | None, month: datetime) -> timedelta:
    # From the beginning of the month on, so that a worker computes it once a month: a tick must not wait for this.
    times = occurrences(CronItem(task="", match=pattern, time_zone=zone), month, month + LONGEST_KEEP)
    found = list(itertools.islice(times, RUNS_KEPT))
    return found[-1] - month if len(found) == RUNS_KEPT else LONGEST_KEEP
