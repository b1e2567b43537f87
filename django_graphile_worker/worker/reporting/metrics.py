"""Counts what becomes of jobs for the metrics of Prometheus; only workers that serve metrics have a part for it.

Jobs are counted in the groups in which they are claimed and released, when the database has stored that. So no job is
counted whose end is not in the database, and a job costs a fraction of a microsecond.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from django_graphile_worker.exceptions import TaskTimeout
from django_graphile_worker.jobs import Job
from django_graphile_worker.logs.errors import class_path
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.telemetry.counts import CLAIMED, RUN, TIMED_OUT, WAIT, Counts, measured
from django_graphile_worker.worker.outcomes import (
    Cancelled,
    CompletedAtomically,
    Expired,
    Failed,
    Interrupted,
    Outcome,
    Recorded,
    Succeeded,
)

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

UNKNOWN_TASK = "?"
_PLAIN = frozenset({Succeeded, Recorded, CompletedAtomically})
_TIMEOUT = class_path(TaskTimeout())

# By position, as access by name costs twice as much.
_task_and_queue = itemgetter(*map(Claim._fields.index, ("task_id", "queue_name")))
_run_at = itemgetter(Claim._fields.index("run_at_epoch"))
_claim, _duration = attrgetter("claim"), attrgetter("duration")


class MetricsRecorder:
    """Counts the jobs of one worker."""

    def __init__(self, worker: DatabaseWorker, counts: Counts) -> None:
        self._worker = worker
        self._counts = counts
        self._database = worker.place.label

    def claimed(self, claims: Sequence[Claim]) -> None:
        for (task_id, queue), number in Counter(map(_task_and_queue, claims)).items():
            self._add(self._task(task_id), queue, {CLAIMED: number})

    def released(self, outcomes: Sequence[Outcome]) -> None:
        """Count outcomes that the database has stored."""
        now = self._worker.server_time()
        claims = list(map(_claim, outcomes))
        groups: dict[tuple[int, str | None], Sequence[Outcome]] = {}
        kinds = set(map(_task_and_queue, claims))
        if len(kinds) == 1:
            # A large batch is mostly of one task.
            groups[kinds.pop()] = outcomes
        else:
            by_kind: defaultdict[tuple[int, str | None], list[Outcome]] = defaultdict(list)
            for outcome, claim in zip(outcomes, claims, strict=True):
                by_kind[_task_and_queue(claim)].append(outcome)
            groups.update(by_kind)
        for (task_id, queue), group in groups.items():
            self._add(self._task(task_id), queue, _counted(group, now))

    def ended(self, jobs: Iterable[Job], outcome: str) -> None:
        """Count jobs that this worker has ended for others, which have died."""
        for job in jobs:
            self._add(job.task_identifier, job.queue_name, {outcome: 1})

    def _task(self, task_id: int) -> str:
        return self._worker.directory.identifier_of(task_id) or UNKNOWN_TASK

    def _add(self, task: str, queue: str | None, cell: dict[str, float]) -> None:
        self._counts.add((self._database, task, queue or ""), cell)


def _counted(outcomes: Sequence[Outcome], now: float) -> dict[str, float]:
    if _PLAIN.issuperset(map(type, outcomes)):
        return {"succeeded": len(outcomes), **_times(outcomes, now)}
    names: Counter[str] = Counter(map(_name, outcomes))
    if timed_out := sum(isinstance(each, Failed) and each.exception_class == _TIMEOUT for each in outcomes):
        names[TIMED_OUT] = timed_out
    return {**names, **_times([each for each in outcomes if _has_times(each)], now)}


def _name(outcome: Outcome) -> str:
    if isinstance(outcome, Failed):
        return "permanently_failed" if outcome.retry_in is None else "failed"
    if isinstance(outcome, Interrupted):
        return "interrupted"
    if isinstance(outcome, Cancelled):
        return "cancelled"
    return "expired" if isinstance(outcome, Expired) else "succeeded"


def _has_times(outcome: Outcome) -> bool:
    """Return whether a run ended: an interrupted job runs again."""
    return not isinstance(outcome, Interrupted | Expired) and (not isinstance(outcome, Cancelled) or outcome.has_begun)


def _times(outcomes: Sequence[Outcome], now: float) -> dict[str, float]:
    """Return the histograms of how long jobs ran, and how long they had been due before they began."""
    if not outcomes:
        return {}
    durations = list(map(_duration, outcomes))
    due = map(_run_at, map(_claim, outcomes))
    waits = [now - duration - run_at for duration, run_at in zip(durations, due, strict=True)]
    return {**measured(RUN, durations), **measured(WAIT, waits)}
