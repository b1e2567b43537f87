"""Actions on many jobs: collects the jobs that a statement selects, and changes them in steps.

Each step is one transaction of the caller: rows are locked only during a step, claims skip only the locked rows of a
step, and finished steps stay committed. A step says what became of each of its jobs. Jobs that a worker was running are
visited once more after all others. The transaction of each step also writes what the action has done so far, so that is
true for every request that continues or stops the action, also if the answer of another request was lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django_graphile_worker.sql import control
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.control import IS_ACTIVE_PAUSE, Cancellation, Fate, Pause
from django_graphile_worker.sql.inspection.job_list import State, Subquery
from django_graphile_worker.sql.job_actions.changes import ARGUMENTS, FAIL, FUNCTION, Change
from django_graphile_worker.sql.results import NOTHING_KEPT, HistoryOutcome, ResultKeeping
from django_graphile_worker.sql.statements import CALLED, IS_RECORDED, RECORD_OPERATOR, qualified, statement

OWN = "where id = %(action_id)s::pg_catalog.uuid and action = %(action)s::text and made_by = %(made_by)s::text"
STEPS = ":SCHEMA._private_action_steps where action_id = %(action_id)s::pg_catalog.uuid"

BEGIN_ACTION = """/* gw:begin-action */
insert into :SCHEMA._private_actions (id, action, made_by, progress)
values (%(action_id)s::pg_catalog.uuid, %(action)s::text, %(made_by)s::text, %(progress)s::jsonb)"""
READ_ACTION = """/* gw:read-action */
select progress, stopped_at is not null from :SCHEMA._private_actions
where id = %(action_id)s::pg_catalog.uuid and made_by = %(made_by)s::text"""
WRITE_ACTION = f"/* gw:write-action */ update :SCHEMA._private_actions set progress = %(progress)s::jsonb {OWN}"
CONFIRM_ACTION = f"{WRITE_ACTION.replace('write-action', 'confirm-action')} and progress ->> 'data' is null"
STOP_ACTION = f"/* gw:stop-action */ update :SCHEMA._private_actions set stopped_at = coalesce(stopped_at, now()) {OWN}"
# A step locks its row until it is committed.
AWAIT_STEP = f"/* gw:await-step */ select from {STEPS} for update"
FORGET = f"/* gw:forget-action */ delete from {STEPS}"
# Seconds after which an action that was not finished can no longer be continued.
CONTINUE_SECONDS = 86_400.0
FORGET_OLD = """/* gw:forget-old-actions */
with old as (
    delete from :SCHEMA._private_actions where made_at < now() - %(seconds)s::float8 * interval '1 second')
delete from :SCHEMA._private_action_steps where made_at < now() - %(seconds)s::float8 * interval '1 second'"""


class Owner(NamedTuple):
    """An action, and the user that performs it."""

    action_id: UUID
    action: str
    made_by: str


class StoredAction(NamedTuple):
    """What an action has done so far, and whether its user has stopped it."""

    progress: Mapping[str, Any]
    is_stopped: bool


def begin_action(cursor: Any, owner: Owner, progress: Mapping[str, Any], *, schema: str) -> None:
    cursor.execute(statement(BEGIN_ACTION, schema), {**owner._asdict(), "progress": json.dumps(progress)})


def read_action(cursor: Any, action_id: UUID, made_by: str, *, schema: str) -> StoredAction | None:
    """Return the action; None if this user has not begun it, or it is too old."""
    cursor.execute(statement(READ_ACTION, schema), {"action_id": action_id, "made_by": made_by})
    row = cursor.fetchone()
    if row is None:
        return None
    progress, is_stopped = row
    return StoredAction(json.loads(progress) if isinstance(progress, str) else progress, is_stopped)


def write_action(cursor: Any, owner: Owner, progress: Mapping[str, Any], *, schema: str) -> None:
    cursor.execute(statement(WRITE_ACTION, schema), {**owner._asdict(), "progress": json.dumps(progress)})


def confirm_action(cursor: Any, owner: Owner, progress: Mapping[str, Any], *, schema: str) -> None:
    """Store the form with which an action was confirmed, unless another request has confirmed it."""
    cursor.execute(statement(CONFIRM_ACTION, schema), {**owner._asdict(), "progress": json.dumps(progress)})


def stop_action(cursor: Any, owner: Owner, *, schema: str) -> None:
    """Let no further step begin, once the caller has committed."""
    cursor.execute(statement(STOP_ACTION, schema), owner._asdict())


def wait_for_step(cursor: Any, action_id: UUID, *, schema: str) -> None:
    """Wait until the step that is running is committed."""
    cursor.execute(statement(AWAIT_STEP, schema), {"action_id": action_id})


def forget(cursor: Any, action_id: UUID, *, schema: str) -> None:
    """Forget the jobs of an action that has ended."""
    cursor.execute(statement(FORGET, schema), {"action_id": action_id})


def forget_old(cursor: Any, *, schema: str) -> None:
    """Forget the actions that can no longer be continued."""
    cursor.execute(statement(FORGET_OLD, schema), {"seconds": CONTINUE_SECONDS})


# How many jobs a step changes.
STEP = 10_000

NOW = "/* gw:now */ select now()"

# One statement, so one snapshot: every job that matches is collected, once, whatever becomes of it afterwards.
COLLECT = """/* gw:collect */
with matched as materialized ({ids}),
found as materialized (
    select job.id, job.state
    from (select distinct * from matched) as wanted (id)
    -- "offset 0": each job is read by its id. A join would compare each job with each id.
    cross join lateral (
        select job.id, {state} as state from only :SCHEMA._private_jobs as job where job.id = wanted.id offset 0) as job
    where job.state = any (%(states)s::text[])),
numbered as (
    select found.id, (row_number() over (order by found.id) - 1) / %(size)s::int as number from found),
inserted as (
    insert into :SCHEMA._private_action_steps (action_id, number, action, made_by, job_ids)
    select %(action_id)s::pg_catalog.uuid, numbered.number, %(action)s::text, %(made_by)s::text,
        array_agg(numbered.id order by numbered.id)
    from numbered group by numbered.number)
select found.state, count(*) from found group by 1"""


def beginning(cursor: Any) -> datetime:
    """Return the time of the beginning of an action."""
    cursor.execute(qualified(NOW))
    moment_of_beginning: datetime = cursor.fetchone()[0]
    return moment_of_beginning


def collect(cursor: Any, owner: Owner, ids: Subquery, states: Sequence[State], *, schema: str) -> dict[State, int]:
    """Store the jobs with these ids that are in these states as steps; return how many there are in each state."""
    text, parameters = ids.named()
    own = {"size": STEP, "states": [*map(str, states)], **owner._asdict()}
    cursor.execute(statement(COLLECT, schema).format(ids=text, state=statement(STATE, schema)), {**parameters, **own})
    return {State(state): number for state, number in cursor.fetchall()}


# How many ids a step names.
MAX_NAMED = 1_000
# Added to the number of a step, it is the number of the step that visits jobs again, which comes after all others.
REPEATED = 1_000_000_000

SILENCE = "/* gw:silence */ select set_config('graphile_worker.notify', 'off', true)"

# The row is gone when the step is committed. A request that waited for it finds the next one. Materialized: a plan that
# evaluated the first part for each step would delete all of them.
NEXT_STEP = """/* gw:next-step */
with following as materialized (
    select each.action_id, each.number from :SCHEMA._private_action_steps as each
    where each.action_id = %(action_id)s::pg_catalog.uuid and each.made_by = %(made_by)s::text
    order by each.number limit 1 for update)
delete from :SCHEMA._private_action_steps as step using following
where step.action_id = following.action_id and step.number = following.number
returning step.number, step.job_ids, step.is_repeated"""
HAS_STEPS = f"/* gw:has-steps */ select exists (select from {STEPS})"
REPEAT = """/* gw:repeat-jobs */
insert into :SCHEMA._private_action_steps (action_id, number, action, made_by, job_ids, is_repeated)
values (
    %(action_id)s::pg_catalog.uuid, %(number)s::int, %(action)s::text, %(made_by)s::text, %(ids)s::bigint[], true)"""

CALLS = {
    "change": f":SCHEMA.{FUNCTION}(%(ids)s::bigint[]{ARGUMENTS})",
    # The function of graphile-worker takes any lock of four hours for that of a dead worker.
    "delete": """:SCHEMA.complete_jobs(array(
        select free.id from only :SCHEMA._private_jobs as free where free.id = any (%(ids)s::bigint[])
            and not :SCHEMA._private_is_held(free.locked_at, free.locked_by)))""",
}
ACT = """/* gw:{tag}-all */
with {called} as materialized (select job from {call} as job){recorded}
select coalesce(array_agg(({called}.job).id), '{{}}'),
    count(*) filter (where ({called}.job).job_queue_id is not null)
from {called}{condition}"""

# As criteria.state_of() says it, in SQL.
STATE = """case
        when job.locked_at is not null then 'running'
        when not job.is_available then 'failed'
        when job.run_at = 'infinity' and exists (
            select from :SCHEMA._private_limited_jobs as parked where parked.job_id = job.id) then 'limited'
        when job.run_at <= now() then 'ready'
        when job.attempts > 0 then 'retrying'
        else 'scheduled'
    end"""
STATES_OF = f"""/* gw:states-of */
select {STATE}, array_agg(job.id)
from only :SCHEMA._private_jobs as job where job.id = any (%(ids)s::bigint[]) group by 1"""
# Each job once, whatever is paused: its queue, its task or one of its flags.
PAUSED = f"""/* gw:paused-jobs */
select kind, name, paused_at, paused_until, reason, paused_by, count(*) from (
    select distinct on (job.id) pause.kind, pause.name, {readable("pause.paused_at")} as paused_at,
        {readable("pause.paused_until")} as paused_until, pause.reason, pause.paused_by
    from only :SCHEMA._private_jobs as job
    join :SCHEMA._private_tasks as task on task.id = job.task_id
    left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
    join :SCHEMA._private_pauses as pause on case pause.kind
        when 'queue' then pause.name = queue.queue_name
        when 'task' then pause.name = task.identifier
        else job.flags ? pause.name end
    where job.id = any (%(ids)s::bigint[]) and {IS_ACTIVE_PAUSE}
    order by job.id, pause.kind) as paused
group by 1, 2, 3, 4, 5, 6 order by 7 desc"""
EXAMPLES = """/* gw:collected-examples */
select each.id from :SCHEMA._private_action_steps as step cross join lateral unnest(step.job_ids) as each(id)
where step.action_id = %(action_id)s::pg_catalog.uuid order by step.number limit %(most)s::int"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a step does with its jobs: a change, the deletion of jobs (None), or a cancellation."""

    change: Change | None = None
    cancellation: Cancellation | None = None
    keeping: ResultKeeping = NOTHING_KEPT
    notify: bool = True


class PendingStep(NamedTuple):
    """A step that is to be done."""

    number: int
    ids: Sequence[int]
    # Whether workers ran its jobs at the first visit.
    is_repeated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What became of the jobs of a step."""

    ids: Sequence[int]
    # The jobs that were not changed, by their states.
    skipped: Mapping[State, Sequence[int]]
    # How many jobs no longer exist.
    ended: int
    # How many of the changed jobs are in a queue.
    queued: int = 0
    # What became of each job that a step cancelled; empty for other actions.
    fates: Sequence[Fate] = ()


def next_step(cursor: Any, owner: Owner, *, schema: str) -> PendingStep | None:
    """Take the next step of the action in the transaction of the caller; None if all are done."""
    while True:
        cursor.execute(statement(NEXT_STEP, schema), owner._asdict())
        if row := cursor.fetchone():
            return PendingStep(*row)
        # Another request may have done the step for which the statement waited.
        cursor.execute(statement(HAS_STEPS, schema), owner._asdict())
        if not cursor.fetchone()[0]:
            return None


def repeat_jobs(cursor: Any, owner: Owner, number: int, job_ids: Sequence[int], *, schema: str) -> None:
    """Let a further step of the action visit these jobs of a step again, after all others."""
    parameters = {**owner._asdict(), "number": number + REPEATED, "ids": list(job_ids)}
    cursor.execute(statement(REPEAT, schema), parameters)


def states_of(cursor: Any, job_ids: Sequence[int], *, schema: str) -> dict[State, list[int]]:
    """Return the jobs of each state; ids without a job are left out."""
    cursor.execute(statement(STATES_OF, schema), {"ids": list(job_ids)})
    return {State(state): ids for state, ids in cursor.fetchall()}


def paused_jobs(cursor: Any, job_ids: Sequence[int], *, schema: str) -> list[tuple[Pause, int]]:
    """Return the pauses that keep some of these jobs from running, with the number of the jobs."""
    if not job_ids:
        return []
    cursor.execute(statement(PAUSED, schema), {"ids": list(job_ids), "now": None})
    return [(Pause.from_row(row[:6]), row[6]) for row in cursor.fetchall()]


def examples(cursor: Any, action_id: UUID, most: int, *, schema: str) -> list[int]:
    """Return the first jobs that were collected."""
    cursor.execute(statement(EXAMPLES, schema), {"action_id": action_id, "most": most})
    return [row[0] for row in cursor.fetchall()]


def run_step(cursor: Any, call: Call, matching: Sequence[int], job_ids: Sequence[int], *, schema: str) -> StepResult:
    """Change the matching jobs, and return what became of each of the jobs of the step."""
    if not call.notify:
        # Until the end of the caller's transaction.
        cursor.execute(qualified(SILENCE))
    if call.cancellation is not None:
        return _cancel(cursor, matching, job_ids, call.cancellation, schema=schema)
    changed, queued = _act(cursor, call, matching, schema=schema)
    return _result(cursor, changed, job_ids, schema=schema, queued=queued)


def _act(cursor: Any, call: Call, job_ids: Sequence[int], *, schema: str) -> tuple[Sequence[int], int]:
    change = call.change
    outcome = HistoryOutcome.REMOVED_BY_OPERATOR if change is None else HistoryOutcome.FAILED_BY_OPERATOR
    is_recorded = change is None or change.action == FAIL
    text = ACT.format(
        tag="delete" if change is None else change.action.replace("_", "-"),
        called=CALLED,
        call=CALLS["delete" if change is None else "change"],
        recorded=f", {RECORD_OPERATOR}" if is_recorded else "",
        condition=f" where {IS_RECORDED}" if is_recorded else "",
    )
    parameters: dict[str, Any] = {"ids": list(job_ids)}
    parameters |= {} if change is None else change.parameters()
    parameters |= {"outcome": outcome, **call.keeping.parameters()} if is_recorded else {}
    cursor.execute(statement(text, schema), parameters)
    changed, queued = cursor.fetchone()
    return changed, queued


def _cancel(
    cursor: Any, matching: Sequence[int], job_ids: Sequence[int], cancellation: Cancellation, *, schema: str
) -> StepResult:
    fates = control.cancel_jobs(cursor, matching, cancellation, schema=schema) if matching else []
    cancelled = [fate.job_id for fate in fates if fate.fate in (control.REMOVED, control.STOPPING)]
    changing = [*cancelled, *(fate.job_id for fate in fates if fate.fate == control.UNSTOPPABLE)]
    result = _result(cursor, changing, job_ids, schema=schema)
    return replace(result, ids=cancelled, fates=fates)


def _result(cursor: Any, changed: Sequence[int], job_ids: Sequence[int], *, schema: str, queued: int = 0) -> StepResult:
    left = list(set(job_ids) - set(changed))
    states = states_of(cursor, left, schema=schema) if left else {}
    ended = len(left) - sum(len(ids) for ids in states.values())
    return StepResult(ids=sorted(changed), queued=queued, skipped=states, ended=ended)
