"""A worker that consists of a pool: what the pool calls there is given by the test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Interrupted, Outcome, Succeeded

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker


class Calls:
    """What a pool calls, unless the test says otherwise."""

    coroutine_tasks: frozenset[int] = frozenset()

    def run(self, claim: Claim) -> Outcome:
        return Succeeded(claim, 0.0)

    def start_job(self, claim: Claim) -> Outcome | None:
        raise AssertionError("expected a job with a thread")

    def resume_job(self, run: Any) -> Outcome:
        raise AssertionError("expected a job with a thread")

    def may_begin(self, claim: Claim) -> bool:
        return True

    def refuse(self, claim: Claim) -> Outcome:
        return Interrupted(claim, 0.0, has_begun=False)

    def job_ended(self, outcome: Outcome) -> None:
        pass

    def release_queue(self, queue: HeldQueue) -> None:
        pass

    def wake_fetcher(self) -> None:
        pass

    def thread_finished(self) -> None:
        pass


def worker_with(calls: Calls, concurrency: int) -> DatabaseWorker:
    """Return a worker of which only the pool is real."""
    worker = SimpleNamespace(
        settings=SimpleNamespace(concurrency=concurrency),
        executor=SimpleNamespace(
            run=calls.run,
            coroutine_tasks=calls.coroutine_tasks,
            start_job=calls.start_job,
            resume_job=calls.resume_job,
            thread_finished=calls.thread_finished,
            event_loop=SimpleNamespace(),
        ),
        may_begin=calls.may_begin,
        refuse=calls.refuse,
        job_ended=calls.job_ended,
        releaser=SimpleNamespace(release_queue=calls.release_queue),
        # Looked up at each call: a test may replace it.
        fetcher=SimpleNamespace(wake=lambda: calls.wake_fetcher()),
    )
    return cast("DatabaseWorker", worker)
