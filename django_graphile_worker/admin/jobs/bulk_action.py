"""An action on many jobs: it collects them when it begins, and changes them in steps, for some seconds in each request.

The ids of the jobs are collected in one snapshot, before the user is asked to confirm their number. So the jobs that
were confirmed are visited, each once, whatever state they have by the time of their step. What the steps have done is
stored with them: a request that continues or stops the action reads it, also if the answer of the last one was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from django.http import Http404

from django_graphile_worker import conf
from django_graphile_worker.admin import databases, pause_notice
from django_graphile_worker.api.change import send_cancelled
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.control import STOPPING, UNSTOPPABLE, removed_jobs
from django_graphile_worker.sql.inspection.job_list import STATES, State, Subquery
from django_graphile_worker.sql.job_actions import bulk_steps
from django_graphile_worker.sql.job_actions.bulk_steps import Call, Owner, PendingStep, StepResult
from django_graphile_worker.sql.job_actions.changes import RETRY, RUN_NEXT, RUN_NOW, first_priority

# Proxies and servers end a request after about 30 seconds, and users do not wait that long. After this time, in
# seconds, a request responds with its progress.
MAX_REQUEST_TIME = 10.0
# What concerns one request only, and is not stored.
NOT_STORED = frozenset({"ids", "changed_now", "is_finished", "is_stopped", "has_timed_out"})
# How many jobs that cannot be stopped a message names.
MAX_UNSTOPPABLE = 20
# How many pauses a message quotes.
MAX_PAUSES = 3


class NoLowerPriorityError(Exception):
    """Another job has the lowest priority of all: none can run before it."""


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The progress of an action over all its requests. The steps up to here are done and committed."""

    action: str
    made_by: str
    action_id: str
    # The search that selected the jobs; "" for jobs that were selected by hand, and the number of these.
    search: str = ""
    selected: int | None = None
    # The page to return to.
    back: str = ""
    # How many jobs of each state were collected.
    counts: Mapping[str, int] = field(default_factory=dict)
    # The form that the user has confirmed; None before.
    data: Mapping[str, str] | None = None
    # How many jobs are to be visited.
    found: int = 0
    # When the first step began.
    began_at: datetime | None = None
    # The priority of jobs that run next.
    priority: int | None = None
    # How many jobs the steps visited, apart from second visits.
    visited: int = 0
    changed: int = 0
    queued: int = 0
    # Of jobs that should run now: how many wait for the end of a pause, and what the pauses say.
    paused: int = 0
    pauses: tuple[str, ...] = ()
    # How many jobs were not changed, by the state that they had, and how many no longer existed.
    skipped: Mapping[str, int] = field(default_factory=dict)
    ended: int = 0
    # Of a cancellation: how many jobs run and are being stopped, and the first ids of jobs that cannot be stopped.
    stopping: int = 0
    unstoppable: int = 0
    unstoppable_ids: tuple[int, ...] = ()
    # Seconds of the steps so far.
    seconds: float = 0.0
    # The following fields concern the current request only.
    ids: tuple[int, ...] = ()
    changed_now: int = 0
    is_finished: bool = False
    # The user has stopped it, in this request or in another.
    is_stopped: bool = False
    # The last step did not end within the statement timeout, and was rolled back.
    has_timed_out: bool = False

    @property
    def is_confirmed(self) -> bool:
        return self.data is not None

    @property
    def owner(self) -> Owner:
        return Owner(UUID(self.action_id), self.action, self.made_by)

    def after(self, result: StepResult, visited: int) -> BulkProgress:
        unstoppable = [fate.job_id for fate in result.fates if fate.fate == UNSTOPPABLE]
        skipped = dict(self.skipped)
        for state, ids in result.skipped.items():
            skipped[state.value] = skipped.get(state.value, 0) + len(ids)
        return replace(
            self,
            visited=self.visited + visited,
            changed=self.changed + len(result.ids),
            queued=self.queued + result.queued,
            skipped=skipped,
            ended=self.ended + result.ended,
            ids=(*self.ids, *result.ids)[: bulk_steps.MAX_NAMED],
            changed_now=self.changed_now + len(result.ids),
            stopping=self.stopping + sum(fate.fate == STOPPING for fate in result.fates),
            unstoppable=self.unstoppable + len(unstoppable),
            unstoppable_ids=(*self.unstoppable_ids, *unstoppable)[:MAX_UNSTOPPABLE],
        )

    def stored(self) -> dict[str, Any]:
        """Return what is stored for the other requests."""
        kept = {name: value for name, value in asdict(self).items() if name not in NOT_STORED}
        return kept | {"began_at": self.began_at and self.began_at.isoformat()}

    @classmethod
    def restored(cls, action: bulk_steps.StoredAction) -> BulkProgress:
        kept = dict(action.progress)
        tuples = {name: tuple(kept[name]) for name in ("unstoppable_ids", "pauses")}
        began_at = kept["began_at"] and datetime.fromisoformat(kept["began_at"])
        return cls(**{**kept, **tuples, "began_at": began_at}, is_stopped=action.is_stopped)


def begin(alias: str, action: str, made_by: str, states: Sequence[State], ids: Subquery, **about: Any) -> BulkProgress:
    """Collect the jobs in these states that the subquery selects, and return how many there are.

    Nothing is changed yet. Of jobs that were selected by hand, each is visited, and the user is told why it stays.
    """
    progress = BulkProgress(action, made_by, str(uuid4()), **about)
    collected = states if progress.selected is None else STATES
    with databases.writing(alias) as (cursor, schema):
        bulk_steps.forget_old(cursor, schema=schema)
        counted = bulk_steps.collect(cursor, progress.owner, ids, collected, schema=schema)
        counts = {state.value: counted[state] for state in STATES if state in counted}
        progress = replace(progress, counts=counts, found=sum(counts.values()))
        bulk_steps.begin_action(cursor, progress.owner, progress.stored(), schema=schema)
    return progress


def load(alias: str, action_id: UUID, made_by: str) -> BulkProgress:
    """Return the progress of an action of this user; raise Http404 if there is none."""
    with databases.reading(alias) as (cursor, schema):
        stored = bulk_steps.read_action(cursor, action_id, made_by, schema=schema)
    if stored is None:
        raise Http404
    return BulkProgress.restored(stored)


@dataclass(frozen=True, slots=True)
class BulkAction:
    """What the steps of an action do."""

    call: Call
    alias: str
    # Returns those of the jobs of a step that the user may see: a job may have been replaced meanwhile.
    visible: Callable[[Sequence[int]], Sequence[int]]
    # Writes the progress and the jobs of a step into the admin's log, in the transaction of the step.
    log: Callable[[BulkProgress, StepResult, PendingStep], None]

    def run(self, progress: BulkProgress) -> BulkProgress:
        """Run the next steps and return the progress. Each step and its entry in the log are one transaction."""
        deadline = monotonic() + MAX_REQUEST_TIME
        while not (progress.is_finished or progress.is_stopped):
            try:
                progress = self._run_step(progress)
            except databases.PageTimeoutError:
                return replace(progress, has_timed_out=True)
            if monotonic() >= deadline:
                break
        return self._forget(progress) if progress.is_finished else progress

    def stop(self, progress: BulkProgress) -> BulkProgress:
        """Stop the action, and return what it has done when the step that is running has ended."""
        with databases.writing(self.alias) as (cursor, schema):
            bulk_steps.stop_action(cursor, progress.owner, schema=schema)
        try:
            with databases.writing(self.alias, waits_for_locks=True) as (cursor, schema):
                bulk_steps.wait_for_step(cursor, progress.owner.action_id, schema=schema)
        except databases.PageTimeoutError:
            return replace(progress, is_stopped=True, has_timed_out=True)
        return self._forget(load(self.alias, progress.owner.action_id, progress.made_by))

    def _run_step(self, progress: BulkProgress) -> BulkProgress:
        """Run the next step, unless there is none or the action was stopped."""
        began = monotonic()
        with databases.writing(self.alias) as (cursor, schema):
            step = bulk_steps.next_step(cursor, progress.owner, schema=schema)
            # Read when the step is locked: now no other request can change it.
            stored = bulk_steps.read_action(cursor, progress.owner.action_id, progress.made_by, schema=schema)
            if stored is None:
                raise Http404
            progress = replace(BulkProgress.restored(stored), ids=progress.ids, changed_now=progress.changed_now)
            if step is None:
                return replace(progress, is_finished=True)
            if progress.is_stopped:
                bulk_steps.forget(cursor, progress.owner.action_id, schema=schema)
                return progress
            if progress.began_at is None:
                began_at = bulk_steps.beginning(cursor)
                progress = replace(progress, began_at=began_at, priority=self._priority(cursor, step, schema))
            result = self._change(cursor, progress, step, schema)
            following = progress.after(result, 0 if step.is_repeated else len(step.ids))
            following = self._with_pauses(cursor, following, result.ids, schema)
            self.log(following, result, step)
            self._report_cancelled(result)
            following = replace(following, seconds=following.seconds + monotonic() - began)
            bulk_steps.write_action(cursor, following.owner, following.stored(), schema=schema)
        # The step has been committed.
        return following

    def _priority(self, cursor: Any, step: PendingStep, schema: str) -> int | None:
        if self.call.change is None or self.call.change.action != RUN_NEXT:
            return None
        priority = first_priority(cursor, step.ids, schema=schema)
        if priority is None:
            raise NoLowerPriorityError
        return priority

    def _change(self, cursor: Any, progress: BulkProgress, step: PendingStep, schema: str) -> StepResult:
        call, matching = self._call(progress), self.visible(step.ids)
        result = bulk_steps.run_step(cursor, call, matching, step.ids, schema=schema)
        running = () if step.is_repeated or call.cancellation else result.skipped.get(State.RUNNING, ())
        if not running:
            return result
        bulk_steps.repeat_jobs(cursor, progress.owner, step.number, running, schema=schema)
        return replace(
            result, skipped={state: ids for state, ids in result.skipped.items() if state is not State.RUNNING}
        )

    def _with_pauses(self, cursor: Any, progress: BulkProgress, ids: Sequence[int], schema: str) -> BulkProgress:
        """Count the jobs that should run now, and wait for the end of a pause."""
        if self.call.change is None or self.call.change.action not in (RUN_NOW, RUN_NEXT, RETRY):
            return progress
        paused = bulk_steps.paused_jobs(cursor, ids, schema=schema)
        said = dict.fromkeys((*progress.pauses, *(pause_notice.sentence(pause) for pause, _ in paused)))
        number = sum(number for _, number in paused)
        return replace(progress, paused=progress.paused + number, pauses=(*said,)[:MAX_PAUSES])

    def _call(self, progress: BulkProgress) -> Call:
        """Use the start time for every step, so jobs keep their order."""
        change = self.call.change
        if change is None:
            return self.call
        priority = change.priority if progress.priority is None else progress.priority
        return replace(self.call, change=replace(change, now=progress.began_at, priority=priority))

    def _report_cancelled(self, result: StepResult) -> None:
        """Send the signal for the jobs that a step removed, when its transaction commits."""
        if self.call.cancellation is not None:
            place = place_of(None if conf.are_installations_named() else self.alias)
            send_cancelled(place, removed_jobs(result.fates, self.call.cancellation))

    def _forget(self, progress: BulkProgress) -> BulkProgress:
        with databases.writing(self.alias) as (cursor, schema):
            bulk_steps.forget(cursor, progress.owner.action_id, schema=schema)
        return progress
