"""The one who looks at the clock for everybody."""

from __future__ import annotations

import os

from django_graphile_worker.worker.deadline import watchdog


def test_a_child_of_a_fork_has_a_watchdog_of_its_own_and_leaves_the_parents_connections_alone() -> None:
    token = watchdog.begin(object(), 600.0)
    child = os.fork()
    if child == 0:
        was_empty = not watchdog._watched
        watchdog.begin(object(), 600.0)
        is_awake = watchdog._thread is not None and watchdog._thread.is_alive()
        os._exit(0 if was_empty and is_awake else 1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        watchdog.end(token)
