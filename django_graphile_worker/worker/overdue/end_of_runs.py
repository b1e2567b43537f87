"""The claims of a process that the supervisor killed at a deadline, ended by the process that follows it.

The run that was past its deadline fails with ``TaskTimeout``. The other jobs are returned without costing an attempt.
Without this, they would wait until another worker recovers them, after ``WORKER_TIMEOUT``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from time import monotonic

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.recovery import dead_claims
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.sql.workers import worker_of
from django_graphile_worker.worker.control.stops import time_limit_reason
from django_graphile_worker.worker.execution.error_text import OWN_FOLDERS
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.execution.stops.stop_of_run import StopOfRun
from django_graphile_worker.worker.fetching.preconnect import database_of
from django_graphile_worker.worker.job_stop import Stop
from django_graphile_worker.worker.outcomes import Interrupted, Outcome
from django_graphile_worker.worker.overdue.run_records import RunRecord
from django_graphile_worker.worker.overdue.watch import Overdue
from django_graphile_worker.worker.parts import Parts
from django_graphile_worker.worker.service import Service

_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)[^\n]*\n((?:  .*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'  File "(.*)", line \d+ in (.*)')


class EndOfRuns(Service):
    """The service that ends the claims of one worker of the dead process, and then ends."""

    name = "dead-process"

    def __init__(self, parts: Parts, overdue: Overdue, number: int) -> None:
        super().__init__(on_trouble=parts.events.database_trouble)
        self._parts = parts
        self._overdue = overdue
        self._runs = {(run.job_id, run.token): run for run in overdue.runs if run.worker == number}
        ids = {worker_of(run.token) for run in self._runs.values()} | set(overdue.worker_ids[number : number + 1])
        self._worker_ids = sorted(ids - {""})
        self._database = database_of(parts.place.using, parts.settings, part=self.name)

    def step(self) -> float:
        """Read the claims of the dead worker, and pass on how each of them ends."""
        if self._parts.is_stopping:
            # The releaser may take nothing more. Another worker recovers the jobs.
            self.stop()
            return math.inf
        with self._database.cursor() as cursor:
            claims = dead_claims(cursor, self._worker_ids, schema=self._database.schema)
        releaser = self._parts.releaser
        for claim in claims:
            releaser.put_urgently(self._outcome(claim))
        for queue in {HeldQueue(claim.queue_id, claim.token) for claim in claims if claim.queue_id is not None}:
            releaser.release_queue(queue)
        self.stop()
        return math.inf

    def close(self) -> None:
        self._database.close()

    def _outcome(self, claim: Claim) -> Outcome:
        record = self._runs.get((claim.id, claim.token))
        if record is None:
            return Interrupted(claim, 0.0, has_begun=False)
        return self._parts.executor.end_without_thread(self._run_of(claim, record))

    def _run_of(self, claim: Claim, record: RunRecord) -> JobRun:
        task = self._parts.directory.task_of(claim.task_id)
        seconds = None if task is None else task.time_limit(self._parts.settings.timeout)
        run = JobRun(claim, monotonic() if seconds is None else record.deadline - seconds, task)
        run.stopping = StopOfRun(Stop(kind="timeout", reason=time_limit_reason(seconds)))
        run.stopping.is_without_process = True
        run.stopping.stack_text = stack_of(self._overdue.stacks, record.thread_id)
        return run


def stack_of(stacks: str, thread_id: int) -> str:
    """Return the stack of one thread, in the order of a traceback, out of the stacks that ``faulthandler`` wrote."""
    threads = {int(number, 16): text for number, text in _THREAD.findall(stacks)}
    own = list(_frames(threads.get(thread_id, "")))
    if not own:
        # The task is a coroutine, so it runs on the thread of the event loop.
        own = next((list(_frames(text)) for text in threads.values() if "run_forever" in text), [])
    return "\n".join(reversed(own))


def _frames(text: str) -> Iterator[str]:
    """Yield the lines of a stack that belong to the task, the innermost first, up to the code that runs all jobs."""
    for line in text.splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is None or (frame[1].startswith(OWN_FOLDERS) and frame[2] == "_run"):
            return
        if not frame[1].startswith(OWN_FOLDERS):
            yield line
