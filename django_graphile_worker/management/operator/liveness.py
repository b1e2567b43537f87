"""Makes sure that workers that are silent are dead.

Every running worker watches the others before it calls one dead. A command has seen nothing yet. After the database's
clock was set, or the database was away for long, everybody is silent by that clock for a moment: so the command looks
on for as long as it takes each worker that lives to beat again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django_graphile_worker.api.connection import open_place
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql import recovery
from django_graphile_worker.worker.maintenance.dead_workers import BEATS_WATCHED, DeadWorkerDetector

LOOK_INTERVAL = 1.0
# Looks that are further apart do not belong together: this process was stopped meanwhile.
LONGEST_GAP = 10.0

monotonic = time.monotonic
pause = time.sleep


def watch_the_silent(
    using: str | None,
    installation: str | None = None,
    *,
    timeout: float,
    on_begin: Callable[[int, float], None],
) -> list[recovery.LateWorker]:
    """Look on until each silent worker has beaten again or is dead; return the dead.

    ``on_begin`` is told how many are silent, and for how many seconds they are watched, if there are any.
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
        queue.refuse_blindness()
        return recovery.look_at_fleet(queue.cursor, schema=queue.schema, timeout=timeout, heartbeat=heartbeat).late
