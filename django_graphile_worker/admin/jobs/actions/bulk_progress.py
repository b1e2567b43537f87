"""Performs an action on many jobs in steps, for a limited time in each request; further requests continue it.

The first request collects the ids of the jobs in one snapshot. So all jobs that matched then are visited, each once,
whatever state they have by the time of their step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from django.core import signing
from django.db import IntegrityError
from django.http import Http404

from django_graphile_worker import conf
from django_graphile_worker.admin import databases
from django_graphile_worker.api.cancelled import send_cancelled
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.cancellations import STOPPING, UNSTOPPABLE, removed_jobs
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.job_actions import bulk_steps, collecting, undo
from django_graphile_worker.sql.job_actions.bulk_steps import Call, PendingStep, StepResult
from django_graphile_worker.sql.job_actions.changes import RUN_NEXT
from django_graphile_worker.sql.job_actions.first_priority import first_priority

# Proxies and servers end a request after about 30 seconds, and users do not wait that long. After this time, in
# seconds, a request responds with its progress.
LONGEST_REQUEST = 10.0
SALT = "graphile_worker.progress"
NOT_KEPT = frozenset({"ids", "changed_now", "is_finished", "has_timed_out"})
# How many jobs that cannot be stopped a message names.
MOST_UNSTOPPABLE = 20


class NoLowerPriorityError(Exception):
    """Another job has the lowest priority of all: none can run before it."""


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The progress of an action over all its requests. The steps up to here are done and committed."""

    action: str
    made_by: str
    action_id: str = ""
    # When it began.
    since: datetime | None = None
    # How many jobs and steps have been collected, where collecting continues, and whether it is the second walk.
    found: int = 0
    collected_steps: int = 0
    place: collecting.Place | None = None
    is_collected: bool = False
    is_second_walk: bool = False
    # The priority of jobs that run next.
    priority: int | None = None
    visited: int = 0
    changed: int = 0
    queued: int = 0
    # How many jobs were not changed, by the state that they had, and how many no longer existed.
    skipped: Mapping[str, int] = field(default_factory=dict)
    ended: int = 0
    # Of a cancellation: how many jobs run and are being stopped, and the first ids of jobs that cannot be stopped.
    stopping: int = 0
    unstoppable: int = 0
    unstoppable_ids: tuple[int, ...] = ()
    # Seconds of the requests so far.
    seconds: float = 0.0
    # The following fields concern the current request only.
    ids: tuple[int, ...] = ()
    changed_now: int = 0
    is_finished: bool = False
    # The last step did not end within the statement timeout, and was rolled back.
    has_timed_out: bool = False

    @property
    def is_undoable(self) -> bool:
        """Whether the former values of all changed jobs are stored."""
        return 0 < self.changed <= undo.MOST_UNDONE

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
            ids=(*self.ids, *result.ids)[: bulk_steps.MOST_NAMED],
            changed_now=self.changed_now + len(result.ids),
            stopping=self.stopping + sum(fate.fate == STOPPING for fate in result.fates),
            unstoppable=self.unstoppable + len(unstoppable),
            unstoppable_ids=(*self.unstoppable_ids, *unstoppable)[:MOST_UNSTOPPABLE],
        )

    def signed(self) -> str:
        """Return the field of the form that continues the action, signed so that a user cannot forge it."""
        kept = {name: value for name, value in asdict(self).items() if name not in NOT_KEPT}
        return signing.dumps({**kept, "since": self.since and self.since.isoformat()}, salt=SALT, compress=True)


def load_progress(text: str | None, action: str, made_by: str) -> BulkProgress:
    """Return the progress that a form has sent, or the progress of an action that has not begun."""
    if not text:
        return BulkProgress(action, made_by)
    try:
        kept: dict[str, Any] = signing.loads(text, salt=SALT)
    except signing.BadSignature:
        raise Http404 from None
    if (kept["action"], kept["made_by"]) != (action, made_by):
        raise Http404
    since, place = kept["since"], kept["place"]
    kept |= {
        "since": datetime.fromisoformat(since) if since else None,
        "place": collecting.Place(tuple(place[0]), place[1]) if place else None,
        "unstoppable_ids": tuple(kept["unstoppable_ids"]),
    }
    return BulkProgress(**kept)


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action on the jobs that meet some criteria."""

    call: Call
    criteria: Criteria
    # The states of the jobs that it changes.
    states: tuple[State, ...]
    alias: str
    # Writes the progress and the jobs of a step into the admin's log, in the transaction of the step.
    log: Callable[[BulkProgress, StepResult, PendingStep], None]

    def run(self, progress: BulkProgress) -> BulkProgress:
        """Run the next steps and return the progress. Each step and its entry in the log are one transaction."""
        began = monotonic()
        deadline = began + LONGEST_REQUEST

        def is_over() -> bool:
            return monotonic() >= deadline

        try:
            progress = self._run(progress, is_over)
        except _TimedOutError as stopped:
            progress = replace(stopped.progress, has_timed_out=True)
        return replace(progress, seconds=progress.seconds + monotonic() - began)

    def _run(self, progress: BulkProgress, is_over: Callable[[], bool]) -> BulkProgress:
        def collect(each: BulkProgress) -> BulkProgress:
            return self._collect(each, is_over)

        if not progress.action_id:
            progress = self._step(self._step(progress, self._begin), collect)
        while True:
            following = self._step(progress, self._run_step)
            if following is not progress:
                progress = following
                if is_over():
                    return progress
            elif progress.is_collected:
                return self._step(replace(progress, is_finished=True), self._finish)
            else:
                # Not by the number of visited jobs: the answer of a request may be lost, and the form be sent again.
                progress = self._step(progress, collect)

    def _step(self, progress: BulkProgress, step: Callable[[BulkProgress], BulkProgress]) -> BulkProgress:
        try:
            return step(progress)
        except databases.PageTimeoutError as error:
            raise _TimedOutError(progress) from error

    def _begin(self, progress: BulkProgress) -> BulkProgress:
        with databases.writing(self.alias) as (cursor, schema):
            undo.forget_old(cursor, schema=schema)
            since = collecting.beginning(cursor)
            priority = self._priority(cursor, schema)
        return replace(progress, action_id=str(uuid4()), since=since, priority=priority)

    def _priority(self, cursor: Any, schema: str) -> int | None:
        if self.call.change is None or self.call.change.action != RUN_NEXT:
            return None
        priority = first_priority(cursor, self.criteria.ids, schema=schema)
        if priority is None:
            raise NoLowerPriorityError
        return priority

    def _collect(self, progress: BulkProgress, is_over: Callable[[], bool]) -> BulkProgress:
        """Store the ids of the jobs as steps.

        If that takes longer than a request, it continues after the steps that it has got, and after its end a second
        walk finds the jobs that have changed their state between two snapshots.
        """
        owner = collecting.Owner(UUID(progress.action_id), progress.action, progress.made_by)
        criteria = self.criteria
        if progress.is_second_walk:
            criteria = replace(criteria, unchanged_since=progress.since)
        try:
            with databases.writing(self.alias, has_one_snapshot=True) as (cursor, schema):
                parts = collecting.parts(cursor, criteria, self.states, schema=schema)
                first = max(progress.collected_steps, bulk_steps.next_number(cursor, owner.action_id, schema=schema))
                found = collecting.collect(
                    cursor,
                    owner,
                    parts,
                    schema=schema,
                    first=first,
                    is_over=is_over,
                    place=progress.place,
                )
        except IntegrityError:
            # A request of another tab has just stored the same steps: they are done first.
            return progress
        is_whole = progress.place is None or progress.is_second_walk
        return replace(
            progress,
            found=progress.found + found.jobs,
            collected_steps=first + found.steps,
            place=found.next_place,
            is_collected=found.next_place is None and is_whole,
            is_second_walk=progress.is_second_walk or (found.next_place is None and not is_whole),
        )

    def _run_step(self, progress: BulkProgress) -> BulkProgress:
        """Run the next step; return the same progress if there is none."""
        action_id = UUID(progress.action_id)
        with databases.writing(self.alias) as session:
            step = bulk_steps.next_step(session.cursor, action_id, progress.made_by, schema=session.schema)
            if step is None:
                return progress
            result = self._change(session, progress, step)
            following = progress.after(result, 0 if step.is_repeated else len(step.ids))
            self.log(following, result, step)
            self._report_cancelled(result)
        # The step has been committed.
        return following

    def _change(self, session: databases.Session, progress: BulkProgress, step: PendingStep) -> StepResult:
        cursor, schema = session
        action_id, call = UUID(progress.action_id), self._call(progress)
        is_kept = call.is_undoable and progress.changed + len(step.ids) <= undo.MOST_UNDONE
        stored_as = (action_id, step.number) if is_kept else None
        result = bulk_steps.run_step(cursor, call, self.criteria, step.ids, schema=schema, stored_as=stored_as)
        running = () if step.is_repeated or call.cancellation else result.skipped.get(State.RUNNING, ())
        if running:
            bulk_steps.repeat_jobs(cursor, action_id, step.number, running, schema=schema)
            others: Mapping[State, Sequence[int]] = {
                state: ids for state, ids in result.skipped.items() if state != State.RUNNING
            }
            result = replace(result, skipped=others)
        if not is_kept:
            undo.forget_step(cursor, action_id, step.number, schema=schema)
        return result

    def _call(self, progress: BulkProgress) -> Call:
        """Return the call with the values of the beginning: all steps have the same time, so the order stays."""
        change = self.call.change
        if change is None:
            return self.call
        priority = change.priority if progress.priority is None else progress.priority
        return replace(self.call, change=replace(change, now=progress.since, priority=priority))

    def _report_cancelled(self, result: StepResult) -> None:
        """Send the signal for the jobs that a step removed, when its transaction commits."""
        if self.call.cancellation is not None:
            place = place_of(None if conf.are_installations_named() else self.alias)
            send_cancelled(place, removed_jobs(result.fates, self.call.cancellation))

    def _finish(self, progress: BulkProgress) -> BulkProgress:
        with databases.writing(self.alias) as (cursor, schema):
            if not (self.call.is_undoable and progress.is_undoable):
                undo.forget(cursor, UUID(progress.action_id), schema=schema)
        return progress


class _TimedOutError(Exception):
    """A step did not end within the statement timeout."""

    def __init__(self, progress: BulkProgress) -> None:
        super().__init__()
        self.progress = progress
