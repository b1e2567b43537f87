"""Watches silent workers before they are declared dead.

Every running worker watches the others before it declares one of them dead; a command that has just started has not.
After a change of the database's clock, or a long outage of the database, all workers are silent by that clock until
their next heartbeat. The command therefore watches for as long as each live worker needs to send a heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django_graphile_worker.api.connection import open_place
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql import recovery
from django_graphile_worker.worker.maintenance.recovery import BEATS_WATCHED, DeadWorkerDetector

LOOK_INTERVAL = 1.0
# If two checks are further apart than this, in seconds, this process was suspended in between, and watching restarts.
LONGEST_GAP = 10.0

monotonic = time.monotonic
pause = time.sleep


def watch_silent_workers(
    using: str | None,
    installation: str | None = None,
    *,
    timeout: float,
    on_begin: Callable[[int, float], None],
) -> list[recovery.LateWorker]:
    """Watch until each silent worker has sent a heartbeat or is dead; return the dead workers.

    If there are silent workers, ``on_begin`` is called with their number and the seconds for which they are watched.
    """
    detector = DeadWorkerDetector(monotonic, longest_gap=LONGEST_GAP)
    is_begun = False
    while True:
        late = _late_workers(using, installation, timeout)
        dead = detector.find_dead(late)
        silent = [worker for worker in late if worker.is_silent]
        if len(dead) >= len(silent):
            return dead
        if not is_begun:
            on_begin(len(silent), BEATS_WATCHED * max(worker.heartbeat_seconds for worker in silent))
            is_begun = True
        pause(min(detector.until_next, LOOK_INTERVAL))


def _late_workers(using: str | None, installation: str | None, timeout: float) -> list[recovery.LateWorker]:
    place = place_of(using, installation)
    heartbeat = place.settings.heartbeat_interval
    with open_place(place) as queue:
        queue.refuse_hidden_tables()
        return recovery.look_at_fleet(queue.cursor, schema=queue.schema, timeout=timeout, heartbeat=heartbeat).late
