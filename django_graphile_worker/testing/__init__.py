"""What the tests of a project use: run jobs inside a test, move the clock, and assert which jobs were added.

May import every other folder, except ``admin`` and ``management``; nothing imports it in production. Start reading in
``drain.py``, which has ``run_jobs()``. It runs jobs with a worker without threads
(``in_process_worker.py``) on the connection of the test (``connections.py``), at the time of the test's clock
(``timelines.py``). ``assertions`` compares what is in the queue.
"""

from __future__ import annotations

from django_graphile_worker.testing.assertions import (
    aassert_enqueued,
    aassert_not_enqueued,
    ajobs,
    assert_enqueued,
    assert_enqueued_in,
    assert_not_enqueued,
    jobs,
)
from django_graphile_worker.testing.clearing import clear_queue
from django_graphile_worker.testing.drain import arun_jobs, run_jobs
from django_graphile_worker.testing.immediate_mode import immediate
from django_graphile_worker.testing.in_process_worker import RanJob
from django_graphile_worker.testing.simulated_clock import Clock, clock

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
