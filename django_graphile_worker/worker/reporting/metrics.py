"""Counts what becomes of jobs for the metrics of Prometheus; only workers that serve metrics have a part for it.

Jobs are counted in the groups in which they are claimed and released, when the database has stored that. So no job is
counted whose end is not in the database, and a job costs a fraction of a microsecond.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, TypeVar

from django_graphile_worker.exceptions import TaskTimeout
from django_graphile_worker.jobs import Job
from django_graphile_worker.logs.errors import class_path
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.telemetry.counts import CLAIMED, RETURNED, TIMED_OUT, Counts, measured
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
# All jobs are counted. Of a larger group of one task, which means thousands of jobs a second, about SAMPLE jobs are
# measured, and stand for all.
MEASURED_WHOLE = 200
SAMPLE = 100
_PLAIN = frozenset({Succeeded, Recorded, CompletedAtomically})
_TIMEOUT = class_path(TaskTimeout())

# By position, as access by name costs twice as much.
_task_id, _queue_name, _run_at = map(itemgetter, map(Claim._fields.index, ("task_id", "queue_name", "run_at_epoch")))
_claim, _duration = attrgetter("claim"), attrgetter("duration")
Item = TypeVar("Item")


class MetricsRecorder:
    """Counts the jobs of one worker."""

    def __init__(self, worker: DatabaseWorker, counts: Counts) -> None:
        self._worker = worker
        self._counts = counts
        self._database = worker.place.label

    def claimed(self, claims: Sequence[Claim]) -> None:
        for (task_id, queue), group in _grouped(claims, claims).items():
            self._add(self._task(task_id), queue, {CLAIMED: len(group)})

    def released(self, outcomes: Sequence[Outcome]) -> None:
        """Count outcomes that the database has stored."""
        now = self._worker.server_time()
        for (task_id, queue), group in _grouped(outcomes, list(map(_claim, outcomes))).items():
            self._add(self._task(task_id), queue, _counted(group, now))

    def ended(self, jobs: Iterable[Job], outcome: str) -> None:
        """Count jobs that this worker has ended for others, which have died."""
        for job in jobs:
            self._add(job.task_identifier, job.queue_name, {outcome: 1})

    def _task(self, task_id: int) -> str:
        return self._worker.directory.identifier_of(task_id) or UNKNOWN_TASK

    def _add(self, task: str, queue: str | None, cell: dict[str, float]) -> None:
        self._counts.add((self._database, task, queue or ""), cell)


def _grouped(items: Sequence[Item], claims: Sequence[Claim]) -> Mapping[tuple[int, str | None], Sequence[Item]]:
    """Return the items by task and queue."""
    task_ids = set(map(_task_id, claims))
    if len(task_ids) == 1 and not any(map(_queue_name, claims)):
        # A large group is mostly of one task.
        return {(task_ids.pop(), None): items}
    groups: defaultdict[tuple[int, str | None], list[Item]] = defaultdict(list)
    for item, claim in zip(items, claims, strict=True):
        groups[claim.task_id, claim.queue_name].append(item)
    return groups


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
        # A job that had not begun is only returned: no history has it, and it is claimed again.
        return "interrupted" if outcome.has_begun else RETURNED
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
    some = outcomes if len(outcomes) <= MEASURED_WHOLE else outcomes[:: len(outcomes) // SAMPLE]
    cell = measured(list(map(_duration, some)), list(map(_run_at, map(_claim, some))), now)
    weight = len(outcomes) / len(some)
    return cell if weight == 1 else {name: number * weight for name, number in cell.items()}
