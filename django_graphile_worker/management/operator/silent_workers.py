"""Makes sure that silent workers are dead.

Every running worker watches the others before it declares a worker dead. A command has watched nothing yet. After the
database's clock was set, or the database was away for long, every worker is silent by that clock for a moment: so the
command watches for as long as it takes each live worker to send its next heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django_graphile_worker.api.connection import open_place
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql import recovery
from django_graphile_worker.worker.maintenance.dead_workers import BEATS_WATCHED, DeadWorkerDetector

LOOK_INTERVAL = 1.0
# Two looks that are further apart do not count as watching: this process was stopped in between.
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
    """Watch until each silent worker has sent a heartbeat or is dead; return the dead.

    ``on_begin`` is called with the number of silent workers and the seconds for which they are watched, if there are
    any.
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
