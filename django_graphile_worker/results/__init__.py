"""What became of a job: its status, the value that its task returned, its attempts and its progress.

``reading`` has ``result()``, which reads on Django's own connection. ``waiting`` has ``wait_for_result()``, whose
``listener`` waits on a connection and a thread of its own, one for each process and database. ``tokens`` signs the ids
in the addresses of the view that tells the progress of a job. The folder may import ``api``, ``sql`` and
``worker.database``. Start reading with ``values``.
"""

from __future__ import annotations

from django_graphile_worker.results.reading import aresult, result
from django_graphile_worker.results.tokens import progress_token
from django_graphile_worker.results.values import Attempt, Result, ResultStatus
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
