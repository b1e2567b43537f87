"""What the tests of a project use: run jobs inside a test, move the clock, and assert which jobs were added.

May import every other folder, except ``admin`` and ``management``; nothing imports it in production. Start reading in
``drain.py``, which has ``run_jobs()``. It runs jobs with a worker without threads (``in_process``), at the time of the
test's clock (``simulated_time``). ``assertions`` compares what is in the queue.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_graphile_worker.testing.assertions.added_jobs import assert_enqueued_in
    from django_graphile_worker.testing.assertions.queued_jobs import (
        aassert_enqueued,
        aassert_not_enqueued,
        ajobs,
        assert_enqueued,
        assert_not_enqueued,
        jobs,
    )
    from django_graphile_worker.testing.clearing import clear_queue
    from django_graphile_worker.testing.drain import arun_jobs, run_jobs
    from django_graphile_worker.testing.immediate_mode import immediate
    from django_graphile_worker.testing.ran_jobs import RanJob
    from django_graphile_worker.testing.simulated_time.simulated_clock import Clock, clock

__all__ = [
    "Clock",
    "RanJob",
    "aassert_enqueued",
    "aassert_not_enqueued",
    "ajobs",
    "arun_jobs",
    "assert_enqueued",
    "assert_enqueued_in",
    "assert_not_enqueued",
    "clear_queue",
    "clock",
    "immediate",
    "jobs",
    "run_jobs",
]

# The module of each name. Modules are loaded when one of their names is first used: pytest loads the plugin, and this
# package with it, in every project, before Django's settings are known.
_HOMES = {
    "Clock": "simulated_time.simulated_clock",
    "RanJob": "ran_jobs",
    "aassert_enqueued": "assertions.queued_jobs",
    "aassert_not_enqueued": "assertions.queued_jobs",
    "ajobs": "assertions.queued_jobs",
    "arun_jobs": "drain",
    "assert_enqueued": "assertions.queued_jobs",
    "assert_enqueued_in": "assertions.added_jobs",
    "assert_not_enqueued": "assertions.queued_jobs",
    "clear_queue": "clearing",
    "clock": "simulated_time.simulated_clock",
    "immediate": "immediate_mode",
    "jobs": "assertions.queued_jobs",
    "run_jobs": "drain",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module(f"{__name__}.clearing").clear_after_flush()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
