"""Performs an action on many jobs in steps, for a limited time in each request; further requests continue it.

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

from django.db import IntegrityError, OperationalError
from django.http import Http404

from django_graphile_worker import conf
from django_graphile_worker.admin import databases, pause_notice
from django_graphile_worker.api.change import send_cancelled
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.control import STOPPING, UNSTOPPABLE, removed_jobs
from django_graphile_worker.sql.errors import sqlstate
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.job_actions import bulk_steps, undo
from django_graphile_worker.sql.job_actions.bulk_steps import Call, Owner, PendingStep, StepResult
from django_graphile_worker.sql.job_actions.changes import RETRY, RUN_NEXT, RUN_NOW, first_priority

# Proxies and servers end a request after about 30 seconds, and users do not wait that long. After this time, in
# seconds, a request responds with its progress.
LONGEST_REQUEST = 10.0
SERIALIZATION_FAILURE = "40001"
UNIQUE_VIOLATION = "23505"
NOT_STORED = frozenset({"ids", "changed_now", "is_finished", "is_stopped", "has_timed_out"})
# How many jobs that cannot be stopped a message names.
MOST_UNSTOPPABLE = 20
# How many pauses a message quotes.
MOST_PAUSES = 3


class NoLowerPriorityError(Exception):
    """Another job has the lowest priority of all: none can run before it."""


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The progress of an action over all its requests. The steps up to here are done and committed."""

    action: str
    made_by: str
    action_id: str = ""
    # The search that selected the jobs; "" for jobs that were selected by hand.
    search: str = ""
    # How many jobs of each state were found when the user was asked, and the number that the user confirms.
    counts: Mapping[str, int] = field(default_factory=dict)
    asked: int = 0
    # When its jobs were collected, and when its first step began.
    since: datetime | None = None
    began_at: datetime | None = None
    # How many jobs and steps have been collected, where collecting continues, and whether it is the second walk.
    found: int = 0
    collected_steps: int = 0
    place: bulk_steps.Place | None = None
    is_collected: bool = False
    is_second_walk: bool = False
    # The priority of jobs that run next.
    priority: int | None = None
    # How many steps are done, and how many jobs they visited, apart from second visits.
    visits: int = 0
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
    def is_undoable(self) -> bool:
        """Whether the former values of all changed jobs are stored."""
        return 0 < self.changed <= undo.MAX_UNDONE

    def after(self, result: StepResult, visited: int) -> BulkProgress:
        unstoppable = [fate.job_id for fate in result.fates if fate.fate == UNSTOPPABLE]
        skipped = dict(self.skipped)
        for state, ids in result.skipped.items():
            skipped[state.value] = skipped.get(state.value, 0) + len(ids)
        return replace(
            self,
            visits=self.visits + 1,
            visited=self.visited + visited,
            changed=self.changed + len(result.ids),
            queued=self.queued + result.queued,
            skipped=skipped,
            ended=self.ended + result.ended,
            ids=(*self.ids, *result.ids)[: bulk_steps.MAX_NAMED],
            changed_now=self.changed_now + len(result.ids),
            stopping=self.stopping + sum(fate.fate == STOPPING for fate in result.fates),
            unstoppable=self.unstoppable + len(unstoppable),
            unstoppable_ids=(*self.unstoppable_ids, *unstoppable)[:MOST_UNSTOPPABLE],
        )

    @property
    def owner(self) -> Owner:
        return Owner(UUID(self.action_id), self.action, self.made_by)

    def stored(self) -> dict[str, Any]:
        """Return what is stored for the other requests."""
        kept = {name: value for name, value in asdict(self).items() if name not in NOT_STORED}
        times = {name: value.isoformat() for name, value in kept.items() if isinstance(value, datetime)}
        return kept | times

    def with_stored(self, action: bulk_steps.StoredAction) -> BulkProgress:
        """Return what all requests have done so far; what concerns the current request only stays."""
        kept = dict(action.progress)
        place = kept["place"]
        kept |= {name: datetime.fromisoformat(kept[name]) for name in ("since", "began_at") if kept[name]}
        kept |= {
            "place": bulk_steps.Place(tuple(place[0]), place[1]) if place else None,
            "unstoppable_ids": tuple(kept["unstoppable_ids"]),
            "pauses": tuple(kept["pauses"]),
        }
        return replace(self, **kept, is_stopped=action.is_stopped)


def load_progress(alias: str, action_id: str, action: str, made_by: str, search: str) -> BulkProgress:
    """Return the progress of the action that a form continues; raise Http404 if it is not of this user and search."""
    try:
        progress = BulkProgress(action, made_by, str(UUID(action_id)))
    except ValueError:
        raise Http404 from None
    with databases.reading(alias) as session:
        progress = _read(session, progress)
    if progress.search != search:
        raise Http404
    return progress


def _read(session: databases.Session, progress: BulkProgress) -> BulkProgress:
    stored = bulk_steps.read_action(session.cursor, progress.owner, schema=session.schema)
    if stored is None:
        raise Http404
    return progress.with_stored(stored)


def _write(session: databases.Session, progress: BulkProgress) -> None:
    bulk_steps.write_action(session.cursor, progress.owner, progress.stored(), schema=session.schema)


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

    def begin(self, progress: BulkProgress) -> BulkProgress:
        """Collect the jobs, and return how many there are for the user to confirm. Nothing is changed yet."""
        # The last statement ends after the deadline, and then the jobs are counted: that is the other half of the time.
        deadline = monotonic() + LONGEST_REQUEST / 2
        return self._collect(self._begin(progress), lambda: monotonic() >= deadline)

    def run(self, progress: BulkProgress) -> BulkProgress:
        """Run the next steps and return the progress. Each step and its entry in the log are one transaction."""
        deadline = monotonic() + LONGEST_REQUEST
        try:
            return self._run(progress, lambda: monotonic() >= deadline)
        except _TimedOutError as stopped:
            return replace(stopped.progress, has_timed_out=True)

    def stop(self, progress: BulkProgress) -> BulkProgress:
        """Stop the action, and return what it has done when the step that is running has ended."""
        with databases.writing(self.alias) as (cursor, schema):
            bulk_steps.stop_action(cursor, progress.owner, schema=schema)
        try:
            with databases.writing(self.alias, waits_for_locks=True) as (cursor, schema):
                bulk_steps.wait_for_step(cursor, progress.owner.action_id, schema=schema)
        except databases.PageTimeoutError:
            progress = replace(progress, has_timed_out=True)
        with databases.reading(self.alias) as session:
            progress = _read(session, progress)
        return progress if progress.has_timed_out else self._finish(progress)

    def _run(self, progress: BulkProgress, is_over: Callable[[], bool]) -> BulkProgress:
        def collect(each: BulkProgress) -> BulkProgress:
            return self._collect(each, is_over)

        if not progress.action_id:
            progress = self._step(self._step(progress, self._begin), collect)
        while True:
            following = self._step(progress, self._run_step)
            if following.is_stopped:
                return following
            if following.visits > progress.visits:
                progress = following
                if is_over():
                    return progress
            elif following.is_collected:
                return self._step(replace(following, is_finished=True), self._finish)
            else:
                progress = self._step(following, collect)

    def _step(self, progress: BulkProgress, step: Callable[[BulkProgress], BulkProgress]) -> BulkProgress:
        try:
            return step(progress)
        except databases.PageTimeoutError as error:
            raise _TimedOutError(progress) from error

    def _begin(self, progress: BulkProgress) -> BulkProgress:
        with databases.writing(self.alias) as (cursor, schema):
            undo.forget_old(cursor, schema=schema)
            progress = replace(progress, action_id=str(uuid4()), since=bulk_steps.beginning(cursor))
            bulk_steps.begin_action(cursor, progress.owner, progress.stored(), schema=schema)
        return progress

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
        criteria = self.criteria
        if progress.is_second_walk:
            criteria = replace(criteria, unchanged_since=progress.since)
        try:
            with databases.writing(self.alias, has_one_snapshot=True) as session:
                following = self._collect_from(session, progress, criteria, is_over)
                _write(session, following)
        except (IntegrityError, OperationalError) as error:
            if sqlstate(error) not in (UNIQUE_VIOLATION, SERIALIZATION_FAILURE):
                raise
            # Since the snapshot another request has stored the same steps, or run one, or stopped the action.
            return progress
        return following

    def _collect_from(
        self, session: databases.Session, progress: BulkProgress, criteria: Criteria, is_over: Callable[[], bool]
    ) -> BulkProgress:
        cursor, schema = session
        owner = progress.owner
        parts = bulk_steps.parts(cursor, criteria, self.states, schema=schema)
        first = max(progress.collected_steps, bulk_steps.next_number(cursor, owner.action_id, schema=schema))
        found = bulk_steps.collect(
            cursor, owner, parts, schema=schema, first=first, is_over=is_over, place=progress.place
        )
        is_whole = progress.place is None or progress.is_second_walk
        following = replace(
            progress,
            found=progress.found + found.jobs,
            collected_steps=first + found.steps,
            place=found.next_place,
            is_collected=found.next_place is None and is_whole,
            is_second_walk=progress.is_second_walk or (found.next_place is None and not is_whole),
        )
        if progress.search and not progress.collected_steps:
            counts = bulk_steps.count_collected(cursor, owner.action_id, self.states, schema=schema)
            asked = sum(number for state, number in counts.items() if state in self.states)
            counted = {state.value: number for state, number in counts.items()}
            skipped = {state.value: number for state, number in counts.items() if state not in self.states}
            following = replace(following, counts=counted, asked=asked, found=asked, skipped=skipped)
        return following

    def _run_step(self, progress: BulkProgress) -> BulkProgress:
        """Run the next step, unless there is none or the action was stopped."""
        began = monotonic()
        with databases.writing(self.alias) as session:
            owner = progress.owner
            step = bulk_steps.next_step(session.cursor, owner.action_id, owner.made_by, schema=session.schema)
            # Read when the step is locked: now no other request can change it.
            progress = _read(session, progress)
            if step is None or progress.is_stopped:
                return progress
            if progress.began_at is None:
                began_at, priority = bulk_steps.beginning(session.cursor), self._priority(*session)
                progress = replace(progress, began_at=began_at, priority=priority)
            result = self._change(session, progress, step)
            following = progress.after(result, 0 if step.is_repeated else len(step.ids))
            following = self._with_pauses(session, following, result.ids)
            self.log(following, result, step)
            self._report_cancelled(result)
            following = replace(following, seconds=following.seconds + monotonic() - began)
            _write(session, following)
        # The step has been committed.
        return following

    def _change(self, session: databases.Session, progress: BulkProgress, step: PendingStep) -> StepResult:
        cursor, schema = session
        action_id, call = UUID(progress.action_id), self._call(progress)
        is_kept = call.is_undoable and progress.changed + len(step.ids) <= undo.MAX_UNDONE
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

    def _with_pauses(self, session: databases.Session, progress: BulkProgress, ids: Sequence[int]) -> BulkProgress:
        """Count the jobs that should run now, and wait for the end of a pause."""
        if self.call.change is None or self.call.change.action not in (RUN_NOW, RUN_NEXT, RETRY):
            return progress
        paused = bulk_steps.paused_jobs(session.cursor, ids, schema=session.schema)
        said = dict.fromkeys((*progress.pauses, *(pause_notice.sentence(pause) for pause, _ in paused)))
        number = sum(number for _, number in paused)
        return replace(progress, paused=progress.paused + number, pauses=(*said,)[:MOST_PAUSES])

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
