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

from django_graphile_worker.admin import databases
from django_graphile_worker.sql import bulk_actions
from django_graphile_worker.sql.inspection.criteria import Criteria

# Proxies and servers end a request after about 30 seconds, and users do not wait that long. After this time, in
# seconds, a request responds with its progress.
LONGEST_REQUEST = 10.0
SALT = "graphile_worker.progress"


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The progress of an action over all its requests. Everything up to `place` is done and committed."""

    action: str
    # Jobs that were changed after this time are skipped: the action must not change a job twice.
    since: datetime | None = None
    place: bulk_actions.Place | None = None
    found: int = 0
    changed: int = 0
    # The following fields concern the current request only.
    ids: tuple[int, ...] = ()
    changed_now: int = 0
    is_finished: bool = False
    # The last step did not end within the statement timeout, and was rolled back.
    has_timed_out: bool = False

    @property
    def skipped(self) -> int:
        return self.found - self.changed

    def after(self, step: bulk_actions.Step) -> BulkProgress:
        return replace(
            self,
            place=step.next_place,
            found=self.found + step.found,
            changed=self.changed + step.changed,
            ids=(*self.ids, *step.ids)[: bulk_actions.MOST_NAMED],
            changed_now=self.changed_now + step.changed,
            is_finished=step.next_place is None,
        )

    def signed(self) -> str:
        """Return the field of the form that continues the action, signed so that a user cannot forge it."""
        kept = {name: value for name, value in asdict(self).items() if name in ("action", "place", "found", "changed")}
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
        found=kept["found"],
        changed=kept["changed"],
    )


def run_steps(
    progress: BulkProgress,
    call: bulk_actions.Call,
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
                following = progress.after(_run_step(session, progress, call, parts, has_steps=has_steps))
                log(following)
            # The step has been committed.
            progress = following
    except databases.PageTimeoutError:
        return replace(progress, has_timed_out=True)
    return progress


def _run_step(
    session: databases.Session, progress: BulkProgress, call: bulk_actions.Call, parts: Any, *, has_steps: bool
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
