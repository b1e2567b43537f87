"""What became of a job: its status, the value that its task returned, its attempts and its progress.

``reading`` has the value, and ``result()``, which reads it on Django's own connection. ``waiting`` has
``wait_for_result()``, which waits on a connection and a thread of its own, one for each process and database.
"""

from __future__ import annotations

from django_graphile_worker.results.reading import Attempt, Result, ResultStatus, aresult, progress_token, result
from django_graphile_worker.results.waiting import await_for_result, wait_for_result

__all__ = [
    "Attempt",
    "Result",
    "ResultStatus",
    "aresult",
    "await_for_result",
    "progress_token",
    "result",
    "wait_for_result",
]
