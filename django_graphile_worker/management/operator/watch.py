"""Makes sure that those who are silent are dead, and not only judged by a clock that was just set.

Every running worker watches the database's clock and its own heartbeats before it
calls another dead. A command has seen nothing yet. After the clock was set ahead, or
the database was away for long, everybody is silent by it for a moment: so it looks on
for as long as it takes each one who lives to say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django_graphile_worker.api.queue import open_queue
from django_graphile_worker.sql import rescue
from django_graphile_worker.worker.recovery import SWEEPS_PER_TIMEOUT, WatchedClock

LOOK_INTERVAL = 1.0

monotonic = time.monotonic
pause = time.sleep


def watch_the_silent(
    using: str | None,
    installation: str | None = None,
    *,
    timeout: float,
    on_begin: Callable[[int, float], None],
) -> None:
    """Look on until nobody is silent any more, or everybody who lives must have beaten by a steady clock.

    ``on_begin`` is told how many are silent, and for how many seconds they are watched, if there are any.
    """
    needed = timeout / 2
    database_clock = WatchedClock(monotonic, tolerance=timeout / SWEEPS_PER_TIMEOUT)
    is_begun = False
    while True:
        suspicion = _suspect(using, installation, timeout)
        database_clock.look(suspicion.moment)
        remaining = needed - min(database_clock.watched_for, database_clock.steady_for)
        if not suspicion.worker_ids or remaining <= 0:
            return
        if not is_begun:
            on_begin(len(suspicion.worker_ids), needed)
            is_begun = True
        pause(min(remaining, LOOK_INTERVAL))


def _suspect(using: str | None, installation: str | None, timeout: float) -> rescue.Suspicion:
    with open_queue(using, installation) as queue:
        queue.refuse_blindness()
        return rescue.suspect(queue.cursor, schema=queue.schema, timeout=timeout)
