"""Actions on many jobs: collects the jobs that match a search, and changes them in steps.

The caller collects in one transaction with one snapshot. So every job that matches at its beginning is collected, once,
whatever becomes of it while the steps change the jobs before it.

Each step is one transaction of the caller: rows are locked only during a step, claims skip only the locked rows of a
step, and finished steps stay committed. A step says what became of each of its jobs. Jobs that a worker was running are
visited once more after all others. The transaction of each step also writes what the action has done so far, so that is
true for every request that continues or stops the action, also if the answer of another request was lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django_graphile_worker.sql import control
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.control import IS_ACTIVE_PAUSE, Cancellation, Fate, Pause
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.job_search.level_walks import LIMITS
from django_graphile_worker.sql.inspection.job_search.orders import order_of
from django_graphile_worker.sql.job_actions.changes import ARGUMENTS, FAIL, FUNCTION, Change
from django_graphile_worker.sql.results import NOTHING_KEPT, HistoryOutcome, ResultKeeping
from django_graphile_worker.sql.statements import CALLED, IS_RECORDED, RECORD_OPERATOR, qualified, statement

OWN = "where id = %(action_id)s::pg_catalog.uuid and action = %(action)s::text and made_by = %(made_by)s::text"
STEPS = ":SCHEMA._private_action_steps where action_id = %(action_id)s::pg_catalog.uuid"

BEGIN_ACTION = """/* gw:begin-action */
insert into :SCHEMA._private_actions (id, action, made_by, progress)
values (%(action_id)s::pg_catalog.uuid, %(action)s::text, %(made_by)s::text, %(progress)s::jsonb)"""
READ_ACTION = f"/* gw:read-action */ select progress, stopped_at is not null from :SCHEMA._private_actions {OWN}"
WRITE_ACTION = f"/* gw:write-action */ update :SCHEMA._private_actions set progress = %(progress)s::jsonb {OWN}"
STOP_ACTION = f"/* gw:stop-action */ update :SCHEMA._private_actions set stopped_at = coalesce(stopped_at, now()) {OWN}"
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


def begin_action(cursor: Any, owner: Owner, progress: Mapping[str, Any], *, schema: str) -> None:
    cursor.execute(statement(BEGIN_ACTION, schema), {**owner._asdict(), "progress": json.dumps(progress)})


def read_action(cursor: Any, owner: Owner, *, schema: str) -> StoredAction | None:
    """Return the action; None if this user has not begun it, or it is too old."""
    cursor.execute(statement(READ_ACTION, schema), owner._asdict())
    row = cursor.fetchone()
    if row is None:
        return None
    progress, is_stopped = row
    return StoredAction(json.loads(progress) if isinstance(progress, str) else progress, is_stopped)


def write_action(cursor: Any, owner: Owner, progress: Mapping[str, Any], *, schema: str) -> None:
    cursor.execute(statement(WRITE_ACTION, schema), {**owner._asdict(), "progress": json.dumps(progress)})


def stop_action(cursor: Any, owner: Owner, *, schema: str) -> None:
    """Let no further step begin, once the caller has committed."""
    cursor.execute(statement(STOP_ACTION, schema), owner._asdict())


def wait_for_step(cursor: Any, action_id: UUID, *, schema: str) -> None:
    """Wait until the step that is running is committed, and forget the steps that are not done."""
    cursor.execute(statement(AWAIT_STEP, schema), {"action_id": action_id})
    cursor.execute(statement(FORGET_PENDING, schema), {"action_id": action_id})


# How many jobs a step changes.
STEP = 10_000
# How many jobs a statement reads.
MAX_READ = 200_000
# A page may leave out tasks beyond a limit; an action on all jobs must not, so its limits are null.
NO_LIMITS = dict.fromkeys(LIMITS)

TASKS = """/* gw:tasks */
select id, identifier from :SCHEMA._private_tasks
where %(tasks)s::text[] is null or identifier = any (%(tasks)s::text[]) order by id"""

NOW = "/* gw:now */ select now()"
ONE_SNAPSHOT = "/* gw:one-snapshot */ set transaction isolation level repeatable read"

# The rows are inserted only if the statement has read all jobs of a part that must be read as a whole.
COLLECT = """/* gw:collect */
with recursive {ctes},
numbered as (
    select matched.id, (row_number() over (order by {order}) - 1) / %(size)s::int as chunk from matched
    where not %(is_whole)s::bool or (select count(*) from candidate) < %(most)s::int),
inserted as (
    insert into :SCHEMA._private_action_steps (action_id, number, action, made_by, job_ids)
    select %(action_id)s::pg_catalog.uuid, %(first)s::int + numbered.chunk, %(action)s::text, %(made_by)s::text,
        array_agg(numbered.id)
    from numbered group by numbered.chunk
    returning cardinality(job_ids) as number)
select (select count(*) from inserted), (select coalesce(sum(inserted.number), 0) from inserted),
    (select count(*) from candidate), ({last})"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some of the jobs, which one index has in order."""

    criteria: Criteria
    # The number of its state and the id of its task, by which a later call continues.
    number: tuple[int, int] = (0, 0)
    # Whether it has the jobs of the following parts of its state: if there are few jobs, they are not needed.
    is_whole: bool = False


class Place(NamedTuple):
    """Where collecting continues: in which part, and after which job. Callers store it as a list."""

    number: tuple[int, int]
    token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """How many steps and jobs were collected, and where to continue if the time was over."""

    steps: int = 0
    jobs: int = 0
    next_place: Place | None = None


def beginning(cursor: Any) -> datetime:
    """Return the time of the beginning of an action."""
    cursor.execute(qualified(NOW))
    moment_of_beginning: datetime = cursor.fetchone()[0]
    return moment_of_beginning


def use_one_snapshot(cursor: Any) -> None:
    """Let all statements of the transaction, which has just begun, see the same rows."""
    cursor.execute(ONE_SNAPSHOT)


def parts(cursor: Any, criteria: Criteria, states: Sequence[State], *, schema: str) -> list[Part]:
    """Divide the jobs in these states that meet the criteria into parts; of mixed states if all are wanted."""
    is_named = bool(criteria.tasks or criteria.queues)
    is_mixed = criteria.state is State.ANY
    if criteria.ids or criteria.keys or (is_mixed and not is_named and len(states) == len(STATES)):
        return [Part(criteria=criteria)]
    cursor.execute(statement(TASKS, schema), {"tasks": list(criteria.tasks) or None})
    tasks = cursor.fetchall()
    wanted = [state for state in STATES if state in states] if is_mixed else [criteria.state]
    return [part for number, state in enumerate(wanted) for part in _of_state(criteria, state, number, tasks)]


def _of_state(criteria: Criteria, state: State, number: int, tasks: Sequence[Any]) -> list[Part]:
    of_state = replace(criteria, state=state)
    whole = Part(criteria=of_state, number=(number, -1), is_whole=state is not State.RUNNING)
    if state is State.RUNNING:
        return [whole]
    each = [Part(criteria=replace(of_state, tasks=(name,)), number=(number, task_id)) for task_id, name in tasks]
    return [whole, *each]


def collect(
    cursor: Any,
    owner: Owner,
    remaining: Sequence[Part],
    *,
    schema: str,
    first: int,
    is_over: Callable[[], bool],
    place: Place | None = None,
) -> Collected:
    """Store the jobs of the parts from the place on as steps, the first of which has the number ``first``."""
    steps = jobs = 0
    complete = -1
    for part in remaining:
        if (place is not None and part.number < place.number) or part.number[0] == complete:
            continue
        token = place.token if place is not None and part.number == place.number else None
        while True:
            if steps and is_over():
                return Collected(steps=steps, jobs=jobs, next_place=Place(part.number, token))
            found = _read_part(cursor, owner, part, token, schema=schema, first=first + steps)
            steps, jobs, token = steps + found.steps, jobs + found.jobs, found.last_token
            if part.is_whole or token is None:
                break
        if part.is_whole and token is None:
            # It had all jobs of its state.
            complete = part.number[0]
    return Collected(steps=steps, jobs=jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartRead:
    """How many steps and jobs a statement has stored, and after which job the next one begins."""

    steps: int
    jobs: int
    last_token: str | None


def _read_part(cursor: Any, owner: Owner, part: Part, token: str | None, *, schema: str, first: int) -> _PartRead:
    order = order_of(part.criteria)
    most = STEP if part.is_whole else MAX_READ
    ctes, parameters = search.matching(part.criteria, order, most=most, after=token)
    last = f"select {order.token('candidate')} from candidate order by {order.reversed().by('candidate')} limit 1"
    text = COLLECT.format(ctes=ctes, order=order.by("matched"), last=last)
    own = {"size": STEP, "is_whole": part.is_whole, "first": first, **owner._asdict()}
    cursor.execute(statement(text, schema), {**parameters, **NO_LIMITS, **own})
    steps, jobs, examined, last_token = cursor.fetchone()
    return _PartRead(steps=steps, jobs=int(jobs), last_token=last_token if examined >= most else None)


# How many ids a step names.
MAX_NAMED = 1_000
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
    changing = [*cancelled, *(fate.job_id for fate in fates if fate.fate == control.UNSTOPPABLE)]
    result = _result(cursor, changing, job_ids, schema=schema)
    return replace(result, ids=cancelled, fates=fates)


def _result(cursor: Any, changed: Sequence[int], job_ids: Sequence[int], *, schema: str, queued: int = 0) -> StepResult:
    left = list(set(job_ids) - set(changed))
    states = states_of(cursor, left, schema=schema) if left else {}
    ended = len(left) - sum(len(ids) for ids in states.values())
    return StepResult(ids=sorted(changed), queued=queued, skipped=states, ended=ended)
