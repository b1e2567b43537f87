"""Carrying out an action: step by step, for as long as a request may take, and on from there when asked."""

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

# Proxies and servers give a request half a minute, and people less. After this a request answers how far it came.
LONGEST_REQUEST = 10.0
SALT = "graphile_worker.progress"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an action has come, over however many requests; everything up to its place is done and committed."""

    action: str
    # Jobs that have changed since are left out: an action must not meet again what it has changed.
    since: datetime | None = None
    place: bulk_actions.Place | None = None
    found: int = 0
    changed: int = 0
    # Of this request alone.
    ids: tuple[int, ...] = ()
    changed_now: int = 0
    is_over: bool = False
    # A step was withdrawn, because it did not end in time.
    is_stuck: bool = False

    @property
    def left_alone(self) -> int:
        return self.found - self.changed

    def after(self, step: bulk_actions.Step) -> Progress:
        return replace(
            self,
            place=step.next_place,
            found=self.found + step.found,
            changed=self.changed + step.changed,
            ids=(*self.ids, *step.ids)[: bulk_actions.MOST_NAMED],
            changed_now=self.changed_now + step.changed,
            is_over=step.next_place is None,
        )

    def signed(self) -> str:
        """What the form that goes on sends back, so that nobody can make it up."""
        kept = {name: value for name, value in asdict(self).items() if name in ("action", "place", "found", "changed")}
        return signing.dumps({**kept, "since": self.since and self.since.isoformat()}, salt=SALT, compress=True)


def resumed(text: str | None, action: str) -> Progress:
    """The progress that a form sent back, or none yet."""
    if not text:
        return Progress(action)
    try:
        kept: dict[str, Any] = signing.loads(text, salt=SALT)
    except signing.BadSignature:
        raise Http404 from None
    if kept["action"] != action:
        raise Http404
    since, place = kept["since"], kept["place"]
    return Progress(
        action,
        since=datetime.fromisoformat(since) if since else None,
        place=bulk_actions.Place(tuple(place[0]), place[1]) if place else None,
        found=kept["found"],
        changed=kept["changed"],
    )


def carry_out(
    progress: Progress, call: bulk_actions.Call, criteria: Criteria, alias: str, note: Callable[[Progress], None]
) -> Progress:
    """Do the next steps, and tell how far they led. Each is a transaction, together with the note about it.

    Inside a transaction of somebody else's, steps would not end what they lock: there, all is done in one.
    """
    deadline = monotonic() + LONGEST_REQUEST
    has_steps = not connections[alias].in_atomic_block
    try:
        with databases.writing(alias) as (cursor, schema):
            parts = bulk_actions.parts(cursor, criteria, schema=schema)
            if progress.since is None and has_steps:
                progress = replace(progress, since=bulk_actions.beginning(cursor))
        while not progress.is_over and monotonic() < deadline:
            with databases.writing(alias) as (cursor, schema):
                step = bulk_actions.step(
                    cursor,
                    call,
                    parts,
                    progress.place,
                    schema=schema,
                    since=progress.since,
                    size=bulk_actions.STEP if has_steps else None,
                )
                ahead = progress.after(step)
                note(ahead)
            # Only what is committed is done.
            progress = ahead
    except databases.PageTimeoutError:
        return replace(progress, is_stuck=True)
    return progress
