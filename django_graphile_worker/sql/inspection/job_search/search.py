"""Find jobs page by page. A page takes the same time whatever the size of the table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django_graphile_worker.jobs import attempts_made
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State, state_of
from django_graphile_worker.sql.inspection.job_search.index_walks import looked_at_by, walk
from django_graphile_worker.sql.inspection.job_search.orders import TYPES, Order, order_of
from django_graphile_worker.sql.inspection.job_search.row_conditions import ENDS_OF_ERROR, Clauses
from django_graphile_worker.sql.inspection.job_search.segmented_search import Found, SegmentedSearch
from django_graphile_worker.sql.inspection.job_search.segments import segments
from django_graphile_worker.sql.inspection.job_search.walk_choice import AVAILABLE
from django_graphile_worker.sql.jobs import IS_DUE, JOIN_PARKED, NOT_TRIED, TRUE_RUN_AT
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.sql.statements import statement

# How many rows a page reads if the criteria need the rows: from a single range of an index, or from each of many.
MOST_EXAMINED = 5_000
MOST_EXAMINED_OF_MANY = 500
# With more names than this, a search walks along many ranges.
FEW_NAMES = 4
# How many pages a list searches before it returns what it has found so far.
MOST_PAGES = 200

# Each candidate is looked up in the table; "offset 0" keeps the planner from reading the table first.
JOBS_OF_CANDIDATES = """cross join lateral (
    select * from :SCHEMA._private_jobs as job where job.id = candidate.id offset 0) as job"""

TOKEN = re.compile(r"[-+0-9: .~a-zA-Z]{1,120}")


def find(
    cursor: Any,
    criteria: Criteria,
    *,
    schema: str,
    limit: int,
    after: str | None = None,
    is_backwards: bool = False,
    order: Order | None = None,
) -> Found:
    """Return the first jobs that meet the criteria, in their order or in the order of ``sort_of``.

    Backwards, return the last jobs in the reverse order.
    """
    parts = segments(criteria)
    if order is None and len(parts) > 1:

        def find_in(segment: Criteria, token: str | None, most: int) -> Found:
            return _find(cursor, segment, schema, most, token, is_backwards)

        return SegmentedSearch(find_in, parts, limit, is_backwards, most_examined=MOST_EXAMINED).find(after)
    return _find(cursor, parts[0] if len(parts) == 1 else criteria, schema, limit, after, is_backwards, order)


def _find(
    cursor: Any,
    criteria: Criteria,
    schema: str,
    limit: int,
    after: str | None,
    is_backwards: bool,
    order: Order | None = None,
) -> Found:
    looked_at = looked_at_by(criteria)
    most = _budget(criteria, looked_at, limit)
    order = order or order_of(criteria)
    order = order.reversed() if is_backwards else order
    text, parameters = _statement(criteria, looked_at, order, most=most, wanted=limit + 1, after=after)
    cursor.execute(statement(text, schema), parameters)
    *matches, (_, examined, last_token) = cursor.fetchall()
    ids = [job_id for _, job_id, _ in matches]
    if len(ids) > limit:
        return Found(ids=ids[:limit], next_token=matches[limit - 1][2], examined=None, first_token=matches[0][2])
    is_cut_off = bool(looked_at.conditions) and examined >= most
    return Found(
        ids=ids,
        next_token=last_token if is_cut_off else None,
        examined=examined if is_cut_off else None,
        first_token=matches[0][2] if matches else None,
    )


def _budget(criteria: Criteria, looked_at: Clauses, limit: int) -> int:
    """Return how many jobs to read. If many ranges are merged, that many are read from each."""
    if not looked_at.conditions:
        return limit + 1
    if looked_at.conditions == [NOT_TRIED]:
        # Few of the waiting jobs have been tried before.
        return 4 * limit
    number = len(criteria.tasks) or (len(criteria.queues) if criteria.state in AVAILABLE else 0)
    is_one_range = 0 < number <= FEW_NAMES or criteria.state in (State.ANY, State.RUNNING) or criteria.ids
    return MOST_EXAMINED if is_one_range else MOST_EXAMINED_OF_MANY


def matching(
    criteria: Criteria, order: Order, *, most: int | None, after: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the clauses ``candidate`` (the next jobs) and ``matched`` (the matching jobs) of a larger statement."""
    return _common(criteria, looked_at_by(criteria), order, most, place_of(order, after))


def _common(
    criteria: Criteria, looked_at: Clauses, order: Order, most: int | None, place: dict[str, str] | None
) -> tuple[str, dict[str, Any]]:
    way = walk(criteria, order, has_place=place is not None, is_bounded=most is not None)
    ctes = f"""{way.ctes + "," if way.ctes else ""}
    candidate as materialized (
        select * from ({way.body}) as candidate order by {order.by("candidate")} limit %(most)s),
    matched as (
        select candidate.* from candidate {JOBS_OF_CANDIDATES if looked_at.conditions else ""}
        where {looked_at.text()} order by {order.by("candidate")})"""
    return ctes, way.parameters | looked_at.parameters | (place or {}) | {"most": most}


def _statement(
    criteria: Criteria, looked_at: Clauses, order: Order, *, most: int, wanted: int, after: str | None
) -> tuple[str, dict[str, Any]]:
    ctes, parameters = _common(criteria, looked_at, order, most, place_of(order, after))
    last = f"select {order.token('candidate')} from candidate order by {order.reversed().by('candidate')} limit 1"
    text = f"""/* gw:find-jobs */
    with recursive {ctes},
    page as (select matched.*, {order.token("matched")} as token from matched limit %(wanted)s)
    (select 'match', page.id, page.token from page order by {order.by("page")})
    union all
    select 'end', (select count(*) from candidate), ({last})"""
    return text, parameters | {"wanted": wanted}


def place_of(order: Order, token: str | None) -> dict[str, str] | None:
    """Return the values of a page token, or None if the text is not a token of this order."""
    columns = order.columns
    parts = token.split("~") if token and TOKEN.fullmatch(token) else []
    if len(parts) != len(columns):
        return None
    if not all(PLACES[TYPES[column]].fullmatch(part) for column, part in zip(columns, parts, strict=True)):
        return None
    return {f"after_{column}": part for column, part in zip(columns, parts, strict=True)}


PLACES = {
    "int": re.compile(r"-?[0-9]{1,5}"),
    "bigint": re.compile(r"[0-9]{1,18}"),
    "timestamptz": re.compile(
        r"-?infinity|[0-9]{4,6}-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
        r"[-+][0-9]{2}(:[0-9]{2}){0,2}( BC)?"
    ),
}


class JobRow(NamedTuple):
    """A job as a list shows it: without its payload, and with the beginning of its error."""

    id: int
    task_identifier: str | None
    queue_name: str | None
    priority: int
    run_at: Any
    attempts: int
    max_attempts: int
    created_at: Any
    updated_at: Any
    key: str | None
    locked_at: Any
    locked_by: str | None
    flags_text: str | None
    error: str | None
    is_available: bool
    is_due: bool
    # What the running attempt has reported.
    done: float | None = None
    total: float | None = None
    message: str | None = None
    is_limited: bool = False
    progress_at: Any = None

    @property
    def state(self) -> State:
        return state_of(self)

    @property
    def progress(self) -> Progress | None:
        """How far the running attempt has got; None if it has reported nothing."""
        if self.done is None:
            return None
        return Progress(done=self.done, total=self.total, message=self.message or "", updated_at=self.progress_at)

    @property
    def attempts_made(self) -> int:
        """The number of real attempts: in the column, a job without further attempts has used up all of them."""
        return attempts_made(self.attempts, self.max_attempts, self.error)

    @property
    def moment(self) -> Any:
        """The time that matters in its state: when it was locked, when it permanently failed, or when it is due."""
        if self.state is State.RUNNING:
            return self.locked_at
        return self.updated_at if self.state is State.FAILED else self.run_at


ROWS = f"""/* gw:job-rows */
select job.id, task.identifier, queue.queue_name, job.priority, {readable(TRUE_RUN_AT)}, job.attempts,
    job.max_attempts, {readable("job.created_at")}, {readable("job.updated_at")}, job.key,
    {readable("job.locked_at")}, :SCHEMA._private_worker_of(job.locked_by), left(job.flags::text, 1000),
    {ENDS_OF_ERROR}, job.is_available, {IS_DUE}, progress.done, progress.total, progress.message,
    parked.job_id is not null, {readable("progress.updated_at")}
from :SCHEMA._private_jobs as job
{JOIN_PARKED}
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
left join :SCHEMA._private_progress as progress
    on progress.job_id = job.id and progress.attempt >= job.attempts and job.locked_at is not null
where job.id = any (%(ids)s::bigint[])"""


def rows(cursor: Any, ids: Sequence[int], *, schema: str) -> list[JobRow]:
    """Return the rows of these jobs, in the order of the ids, without jobs that no longer exist."""
    cursor.execute(statement(ROWS, schema), {"ids": list(ids)})
    found = {row[0]: JobRow._make(row) for row in cursor.fetchall()}
    return [found[job_id] for job_id in ids if job_id in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The first jobs of a list, whether there are more, and whether the search ended before all were read."""

    rows: list[JobRow]
    has_more: bool
    is_cut_off: bool


def list_jobs(cursor: Any, criteria: Criteria, *, schema: str, limit: int) -> Listed:
    """Return the first jobs that meet the criteria, however many other jobs are between them."""
    ids: list[int] = []
    token = None
    for _ in range(MOST_PAGES):
        found = find(cursor, criteria, schema=schema, limit=limit + 1 - len(ids), after=token)
        ids, token = ids + found.ids, found.next_token
        if len(ids) > limit or token is None:
            break
    shown = rows(cursor, ids[:limit], schema=schema)
    return Listed(rows=shown, has_more=len(ids) > limit, is_cut_off=len(ids) <= limit and token is not None)
