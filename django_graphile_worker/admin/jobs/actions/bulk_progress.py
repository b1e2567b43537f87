"""Performs an action on many jobs in steps, for a limited time in each request; further requests continue it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from time import monotonic
from typing import Any

from django.core import signing
from django.db import connections
from django.http import Http404

from django_graphile_worker import conf
from django_graphile_worker.admin import databases
from django_graphile_worker.api.cancelled import send_cancelled
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql import bulk_actions
from django_graphile_worker.sql.cancellations import STOPPING, UNSTOPPABLE, removed_jobs
from django_graphile_worker.sql.inspection.criteria import Criteria

# Proxies and servers end a request after about 30 seconds, and users do not wait that long. After this time, in
# seconds, a request responds with its progress.
LONGEST_REQUEST = 10.0
SALT = "graphile_worker.progress"
COUNTS = ("found", "changed", "stopping", "unstoppable")
KEPT = frozenset({"action", "place", "unstoppable_ids", *COUNTS})
# How many jobs that cannot be stopped a message names.
MOST_UNSTOPPABLE = 20


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The progress of an action over all its requests. Everything up to `place` is done and committed."""

    action: str
    # Jobs that were changed after this time are skipped: the action must not change a job twice.
    since: datetime | None = None
    place: bulk_actions.Place | None = None
    found: int = 0
    changed: int = 0
    # Of a cancellation: how many jobs run and are being stopped, and the first ids of jobs that cannot be stopped.
    stopping: int = 0
    unstoppable: int = 0
    unstoppable_ids: tuple[int, ...] = ()
    # The following fields concern the current request only.
    ids: tuple[int, ...] = ()
    changed_now: int = 0
    is_finished: bool = False
    # The last step did not end within the statement timeout, and was rolled back.
    has_timed_out: bool = False

    @property
    def skipped(self) -> int:
        return self.found - self.changed - self.unstoppable

    def after(self, step: bulk_actions.Step) -> BulkProgress:
        unstoppable = [fate.job_id for fate in step.fates if fate.fate == UNSTOPPABLE]
        return replace(
            self,
            place=step.next_place,
            found=self.found + step.found,
            changed=self.changed + step.changed,
            ids=(*self.ids, *step.ids)[: bulk_actions.MOST_NAMED],
            changed_now=self.changed_now + step.changed,
            is_finished=step.next_place is None,
            stopping=self.stopping + sum(fate.fate == STOPPING for fate in step.fates),
            unstoppable=self.unstoppable + len(unstoppable),
            unstoppable_ids=(*self.unstoppable_ids, *unstoppable)[:MOST_UNSTOPPABLE],
        )

    def signed(self) -> str:
        """Return the field of the form that continues the action, signed so that a user cannot forge it."""
        kept = {name: value for name, value in asdict(self).items() if name in KEPT}
        return signing.dumps({**kept, "since": self.since and self.since.isoformat()}, salt=SALT, compress=True)


def load_progress(text: str | None, action: str) -> BulkProgress:
    """Return the progress that a form has sent, or the progress of an action that has not begun."""
    if not text:
        return BulkProgress(action)
    try:
        kept: dict[str, Any] = signing.loads(text, salt=SALT)
    except signing.BadSignature:
        raise Http404 from None
    if kept["action"] != action:
        raise Http404
    since, place = kept["since"], kept["place"]
    return BulkProgress(
        action,
        since=datetime.fromisoformat(since) if since else None,
        place=bulk_actions.Place(tuple(place[0]), place[1]) if place else None,
        unstoppable_ids=tuple(kept["unstoppable_ids"]),
        **{name: kept[name] for name in COUNTS},
    )


def run_steps(
    progress: BulkProgress,
    call: bulk_actions.Call | bulk_actions.CancelCall,
    criteria: Criteria,
    alias: str,
    log: Callable[[BulkProgress], None],
) -> BulkProgress:
    """Run the next steps and return the progress. Each step and its entry in the log are one transaction.

    Inside a transaction of the caller, steps would not release their locks: there, one step changes all jobs.
    """
    deadline = monotonic() + LONGEST_REQUEST
    has_steps = not connections[alias].in_atomic_block
    try:
        with databases.writing(alias) as (cursor, schema):
            parts = bulk_actions.parts(cursor, criteria, schema=schema)
            if progress.since is None and has_steps:
                progress = replace(progress, since=bulk_actions.beginning(cursor))
        while not progress.is_finished and monotonic() < deadline:
            with databases.writing(alias) as session:
                step = _run_step(session, progress, call, parts, has_steps=has_steps)
                following = progress.after(step)
                log(following)
                _report_cancelled(step, call, alias)
            # The step has been committed.
            progress = following
    except databases.PageTimeoutError:
        return replace(progress, has_timed_out=True)
    return progress


def _report_cancelled(step: bulk_actions.Step, call: bulk_actions.Call | bulk_actions.CancelCall, alias: str) -> None:
    """Send the signal for the jobs that a step removed, when its transaction commits."""
    if isinstance(call, bulk_actions.CancelCall):
        place = place_of(None if conf.are_installations_named() else alias)
        send_cancelled(place, removed_jobs(step.fates, call.cancellation))


def _run_step(
    session: databases.Session,
    progress: BulkProgress,
    call: bulk_actions.Call | bulk_actions.CancelCall,
    parts: Any,
    *,
    has_steps: bool,
) -> bulk_actions.Step:
    return bulk_actions.step(
        session.cursor,
        call,
        parts,
        progress.place,
        schema=session.schema,
        since=progress.since,
        size=bulk_actions.STEP if has_steps else None,
    )
