"""Stores the steps of actions, and undoes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django_graphile_worker.sql.statements import Cursor, statement

# How many jobs the action may have changed that can be undone.
MAX_UNDONE = 10_000
# Seconds for which an action can be undone.
UNDO_SECONDS = 3_600.0
# Seconds after which an action that was not finished can no longer be continued.
CONTINUE_SECONDS = 86_400.0

FORGET_OLD = """/* gw:forget-old-actions */
delete from :SCHEMA._private_action_steps
where made_at < now() - %(seconds)s::float8 * interval '1 second'
    and (done_at is not null or made_at < now() - %(pending_seconds)s::float8 * interval '1 second')"""
FORGET_OLD_ACTIONS = """/* gw:forget-old-actions */
delete from :SCHEMA._private_actions where made_at < now() - %(pending_seconds)s::float8 * interval '1 second'"""
FORGET = """/* gw:forget-action */
delete from :SCHEMA._private_action_steps where action_id = %(action_id)s::pg_catalog.uuid"""
FORGET_STEP = f"{FORGET} and number = %(number)s::int"

STORED = """/* gw:stored-action */
select number, action, changed_ids from :SCHEMA._private_action_steps
where action_id = %(action_id)s::pg_catalog.uuid and made_by = %(made_by)s::text and done_at is not null
    and made_at >= now() - %(seconds)s::float8 * interval '1 second'
order by number"""
# An id that is null is no job. The other values of the step stay in their places.
KEEP_ONLY = """/* gw:undo-only */
update :SCHEMA._private_action_steps set changed_ids = array(
    select case when each.id = any (%(ids)s::bigint[]) then each.id end
    from unnest(changed_ids) with ordinality as each(id, place) order by each.place)
where action_id = %(action_id)s::pg_catalog.uuid and number = %(number)s::int"""
UNDO = "/* gw:undo */ select :SCHEMA._private_undo_step(%(action_id)s::pg_catalog.uuid, %(number)s::int)"


class StoredStep(NamedTuple):
    """A step that can be undone."""

    number: int
    action: str
    changed_ids: Sequence[int]


def forget_old(cursor: Cursor, *, schema: str) -> None:
    """Delete the steps of actions that can no longer be undone, or continued."""
    parameters = {"seconds": UNDO_SECONDS, "pending_seconds": CONTINUE_SECONDS}
    cursor.execute(statement(FORGET_OLD, schema), parameters)
    cursor.execute(statement(FORGET_OLD_ACTIONS, schema), {"pending_seconds": CONTINUE_SECONDS})


def forget(cursor: Cursor, action_id: UUID, *, schema: str) -> None:
    """Delete the steps of an action."""
    cursor.execute(statement(FORGET, schema), {"action_id": action_id})


def forget_step(cursor: Cursor, action_id: UUID, number: int, *, schema: str) -> None:
    """Delete a step, which leaves nothing to undo."""
    cursor.execute(statement(FORGET_STEP, schema), {"action_id": action_id, "number": number})


def stored_steps(cursor: Cursor, action_id: UUID, made_by: str, *, schema: str) -> list[StoredStep]:
    """Return the steps of an action of this user, unless it is too old, or was undone before."""
    parameters: dict[str, Any] = {"action_id": action_id, "made_by": made_by, "seconds": UNDO_SECONDS}
    cursor.execute(statement(STORED, schema), parameters)
    return [StoredStep(*row) for row in cursor.fetchall()]


def undo_step(
    cursor: Cursor, action_id: UUID, number: int, *, schema: str, only: Sequence[int] | None = None
) -> list[int]:
    """Give the jobs of a step their former values, unless something has changed them since; return their ids.

    With ``only``, the other jobs of the step stay as they are.
    """
    if only is not None:
        parameters = {"action_id": action_id, "number": number, "ids": list(only)}
        cursor.execute(statement(KEEP_ONLY, schema), parameters)
    cursor.execute(statement(UNDO, schema), {"action_id": action_id, "number": number})
    (ids,) = cursor.fetchone()
    return list(ids)
