"""Stores what an action on many jobs has done so far, and whether its user has stopped it.

The transaction of each step writes the figures, so they are true for every request that continues or stops the action,
also if the answer of another request was lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from django_graphile_worker.sql.statements import statement

OWN = "where id = %(action_id)s::pg_catalog.uuid and action = %(action)s::text and made_by = %(made_by)s::text"
STEPS = ":SCHEMA._private_action_steps where action_id = %(action_id)s::pg_catalog.uuid"

BEGIN = """/* gw:begin-action */
insert into :SCHEMA._private_actions (id, action, made_by, progress)
values (%(action_id)s::pg_catalog.uuid, %(action)s::text, %(made_by)s::text, %(progress)s::jsonb)"""
READ = f"/* gw:read-action */ select progress, stopped_at is not null from :SCHEMA._private_actions {OWN}"
WRITE = f"/* gw:write-action */ update :SCHEMA._private_actions set progress = %(progress)s::jsonb {OWN}"
STOP = f"/* gw:stop-action */ update :SCHEMA._private_actions set stopped_at = coalesce(stopped_at, now()) {OWN}"
# A step locks its row until it is committed.
AWAIT_STEP = f"/* gw:await-step */ select from {STEPS} for update"
FORGET_PENDING = f"/* gw:forget-pending */ delete from {STEPS} and done_at is null"


class Owner(NamedTuple):
    """An action, and the user that performs it."""

    action_id: UUID
    action: str
    made_by: str


class StoredAction(NamedTuple):
    """What an action has done so far, and whether its user has stopped it."""

    progress: Mapping[str, Any]
    is_stopped: bool


def begin(cursor: Any, owner: Owner, progress: Mapping[str, Any], *, schema: str) -> None:
    cursor.execute(statement(BEGIN, schema), {**owner._asdict(), "progress": json.dumps(progress)})


def read(cursor: Any, owner: Owner, *, schema: str) -> StoredAction | None:
    """Return the action; None if this user has not begun it, or it is too old."""
    cursor.execute(statement(READ, schema), owner._asdict())
    row = cursor.fetchone()
    if row is None:
        return None
    progress, is_stopped = row
    return StoredAction(json.loads(progress) if isinstance(progress, str) else progress, is_stopped)


def write(cursor: Any, owner: Owner, progress: Mapping[str, Any], *, schema: str) -> None:
    cursor.execute(statement(WRITE, schema), {**owner._asdict(), "progress": json.dumps(progress)})


def stop(cursor: Any, owner: Owner, *, schema: str) -> None:
    """Let no further step begin, once the caller has committed."""
    cursor.execute(statement(STOP, schema), owner._asdict())


def wait_for_step(cursor: Any, action_id: UUID, *, schema: str) -> None:
    """Wait until the step that is running is committed, and forget the steps that are not done."""
    cursor.execute(statement(AWAIT_STEP, schema), {"action_id": action_id})
    cursor.execute(statement(FORGET_PENDING, schema), {"action_id": action_id})
