"""Changes the jobs that an action has collected, in steps.

Each step is one transaction of the caller: rows are locked only during a step, claims skip only the locked rows of a
step, and finished steps stay committed. A step says what became of each of its jobs. Jobs that a worker was running are
visited once more after all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

from django_graphile_worker.sql import control
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.control import IS_ACTIVE_PAUSE, Cancellation, Fate, Pause
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.job_search.orders import order_of
from django_graphile_worker.sql.job_actions.changes import ARGUMENTS, FAIL, FUNCTION, Change
from django_graphile_worker.sql.job_actions.collecting import NO_LIMITS
from django_graphile_worker.sql.results import NOTHING_KEPT, HistoryOutcome, ResultKeeping
from django_graphile_worker.sql.statements import CALLED, IS_RECORDED, RECORD_OPERATOR, qualified, statement

# How many ids a step names.
MOST_NAMED = 1_000
# Added to the number of a step, it is the number of the step that visits jobs again, which comes after all others.
REPEATED = 1_000_000_000

SILENCE = "/* gw:silence */ select set_config('graphile_worker.notify', 'off', true)"

NEXT_STEP = """/* gw:next-step */
select number, job_ids, is_repeated from :SCHEMA._private_action_steps
where action_id = %(action_id)s::pg_catalog.uuid and made_by = %(made_by)s::text and done_at is null
order by number limit 1 for update"""
NEXT_NUMBER = f"""/* gw:next-number */
select coalesce(max(number) + 1, 0) from :SCHEMA._private_action_steps
where action_id = %(action_id)s::pg_catalog.uuid and number < {REPEATED}"""
REPEAT = """/* gw:repeat-jobs */
insert into :SCHEMA._private_action_steps (action_id, number, action, made_by, job_ids, is_repeated)
select action_id, number + %(repeated)s::int, action, made_by, %(ids)s::bigint[], true
from :SCHEMA._private_action_steps where action_id = %(action_id)s::pg_catalog.uuid and number = %(number)s::int"""

CALLS = {
    "change": f":SCHEMA.{FUNCTION}(%(ids)s::bigint[]{ARGUMENTS})",
    "delete": ":SCHEMA.complete_jobs(%(ids)s::bigint[])",
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
COLLECTED = """:SCHEMA._private_action_steps as step
cross join lateral unnest(step.job_ids) with ordinality as each(id, place)
join only :SCHEMA._private_jobs as job on job.id = each.id
where step.action_id = %(action_id)s::pg_catalog.uuid"""
COUNT_COLLECTED = f"/* gw:count-collected */ select {STATE}, count(*) from {COLLECTED} group by 1"
KEEP_COLLECTED = f"""/* gw:keep-collected */
with kept as (
    select step.number, array_agg(job.id order by each.place) as job_ids from {COLLECTED}
        and {STATE} = any (%(states)s::text[])
    group by 1)
update :SCHEMA._private_action_steps as step
set job_ids = coalesce((select kept.job_ids from kept where kept.number = step.number), '{{}}')
where step.action_id = %(action_id)s::pg_catalog.uuid"""
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

    @property
    def is_undoable(self) -> bool:
        """Whether the former values of the jobs are enough to undo it."""
        return self.change is not None and self.change.payload is None


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


def next_step(cursor: Any, action_id: UUID, made_by: str, *, schema: str) -> PendingStep | None:
    """Return the next step of the action, locked; None if all are done."""
    cursor.execute(statement(NEXT_STEP, schema), {"action_id": action_id, "made_by": made_by})
    row = cursor.fetchone()
    return None if row is None else PendingStep(*row)


def next_number(cursor: Any, action_id: UUID, *, schema: str) -> int:
    """Return a number that is higher than those of the steps that are stored, apart from repeated visits."""
    cursor.execute(statement(NEXT_NUMBER, schema), {"action_id": action_id})
    return int(cursor.fetchone()[0])


def repeat_jobs(cursor: Any, action_id: UUID, number: int, job_ids: Sequence[int], *, schema: str) -> None:
    """Let a further step of the action visit these jobs again, after all others."""
    parameters = {"action_id": action_id, "number": number, "ids": list(job_ids), "repeated": REPEATED}
    cursor.execute(statement(REPEAT, schema), parameters)


def matching_ids(cursor: Any, criteria: Criteria, job_ids: Sequence[int], *, schema: str) -> list[int]:
    """Return the ids whose jobs still meet the criteria, in whatever state they are now."""
    changeable = replace(criteria, state=State.ANY, ids=(), tasks=(), created_at=(None, None))
    if changeable == Criteria():
        # The task of a job, and the time when it was added, never change.
        return list(job_ids)
    chosen = replace(criteria, ids=tuple(job_ids), state=State.ANY)
    ctes, parameters = search.matching(chosen, order_of(chosen), most=None)
    text = f"/* gw:still-matching */ with recursive {ctes} select matched.id from matched"
    cursor.execute(statement(text, schema), {**parameters, **NO_LIMITS})
    return [row[0] for row in cursor.fetchall()]


def states_of(cursor: Any, job_ids: Sequence[int], *, schema: str) -> dict[State, list[int]]:
    """Return the jobs of each state; ids without a job are left out."""
    cursor.execute(statement(STATES_OF, schema), {"ids": list(job_ids)})
    return {State(state): ids for state, ids in cursor.fetchall()}


def count_collected(cursor: Any, action_id: UUID, states: Sequence[State], *, schema: str) -> dict[State, int]:
    """Return how many jobs of each state were collected. Only those in the given states stay collected."""
    cursor.execute(statement(COUNT_COLLECTED, schema), {"action_id": action_id})
    counts = {State(state): number for state, number in cursor.fetchall()}
    if set(counts) - set(states):
        cursor.execute(statement(KEEP_COLLECTED, schema), {"action_id": action_id, "states": [*map(str, states)]})
    return counts


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


def run_step(
    cursor: Any,
    call: Call,
    criteria: Criteria,
    job_ids: Sequence[int],
    *,
    schema: str,
    stored_as: tuple[UUID, int] | None = None,
) -> StepResult:
    """Change these jobs, and return what became of each. ``stored_as`` is the step that stores the former values."""
    if not call.notify:
        # Until the end of the caller's transaction.
        cursor.execute(qualified(SILENCE))
    matching = matching_ids(cursor, criteria, job_ids, schema=schema)
    if call.cancellation is not None:
        return _cancel(cursor, matching, job_ids, call.cancellation, schema=schema)
    action_id, number = stored_as or (None, None)
    changed, queued = _act(cursor, call, matching, {"action_id": action_id, "step": number}, schema=schema)
    return _result(cursor, changed, job_ids, schema=schema, queued=queued)


def _act(
    cursor: Any, call: Call, job_ids: Sequence[int], stored_as: dict[str, Any], *, schema: str
) -> tuple[Sequence[int], int]:
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
    parameters |= {} if change is None else {**change.parameters(), **stored_as}
    parameters |= {"outcome": outcome, **call.keeping.parameters()} if is_recorded else {}
    cursor.execute(statement(text, schema), parameters)
    changed, queued = cursor.fetchone()
    return changed, queued


def _cancel(
    cursor: Any, matching: Sequence[int], job_ids: Sequence[int], cancellation: Cancellation, *, schema: str
) -> StepResult:
    fates = control.cancel_jobs(cursor, matching, cancellation, schema=schema) if matching else []
    cancelled = [fate.job_id for fate in fates if fate.fate in (control.REMOVED, control.STOPPING)]
    told = [*cancelled, *(fate.job_id for fate in fates if fate.fate == control.UNSTOPPABLE)]
    result = _result(cursor, told, job_ids, schema=schema)
    return replace(result, ids=cancelled, fates=fates)


def _result(cursor: Any, changed: Sequence[int], job_ids: Sequence[int], *, schema: str, queued: int = 0) -> StepResult:
    left = list(set(job_ids) - set(changed))
    states = states_of(cursor, left, schema=schema) if left else {}
    ended = len(left) - sum(len(ids) for ids in states.values())
    return StepResult(ids=sorted(changed), queued=queued, skipped=states, ended=ended)
