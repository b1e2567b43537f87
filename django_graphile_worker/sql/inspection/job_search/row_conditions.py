"""The SQL conditions of criteria on the row of a job.

A walk along an index meets some of the criteria; for the others, the row of each job that the walk finds is read.
Every condition here is true or false, never null, so that it can be negated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django_graphile_worker.sql import jobs
from django_graphile_worker.sql.inspection.job_search.criteria import CONDITIONS, Criteria, State, included_states
from django_graphile_worker.sql.jobs import TRUE_RUN_AT_OF_JOB


class Clauses:
    """A collection of conditions and their parameters. A prefix keeps the parameters of several collections apart."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.conditions: list[str] = []
        self.parameters: dict[str, Any] = {}

    def add(self, condition: str) -> None:
        self.conditions.append(condition)

    def add_all(self, other: Clauses) -> None:
        self.conditions += other.conditions
        self.parameters |= other.parameters

    def parameter(self, name: str, value: Any, kind: str) -> str:
        """Add a parameter, and return the expression that has its value."""
        self.parameters[f"{self.prefix}{name}"] = value
        return f"%({self.prefix}{name})s::{kind}"

    def names(self, name: str, values: Sequence[Any], kind: str = "text") -> str:
        return f"any ({self.parameter(name, list(values), f'{kind}[]')})"

    def add_range(self, column: str, name: str, kind: str, bounds: tuple[Any, Any]) -> None:
        for bound, operator, suffix in zip(bounds, (">=", "<="), ("low", "high"), strict=True):
            if bound is not None:
                self.add(f"{column} {operator} {self.parameter(f'{name}_{suffix}', bound, kind)}")

    def text(self) -> str:
        return " and ".join(self.conditions) or "true"


# A value of type json may contain escapes for which its operators raise an error, which would end the search: NUL, and
# halves of surrogate pairs. The expression removes escaped backslashes, which may precede a harmless "u", and whole
# pairs; then it searches for such escapes.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_READABLE = rf"""case when pg_catalog.strpos(job.payload::text, '\u') = 0 then true
    else not pg_catalog.regexp_replace(
        pg_catalog.regexp_replace(job.payload::text, '\\\\', '', 'g'), '{_PAIR}', '', 'g') ~ '\\u(0000|[dD][89a-fA-F])'
    end"""

# Larger payloads, in bytes as stored, are not searched for texts: a look at some thousand jobs must end in time.
LARGEST_PAYLOAD = 256 * 1024

# What a list reads of an error: the worker writes the number of attempts near its beginning, an operator at its end.
ENDS_OF_ERROR = r"""case when pg_catalog.length(job.last_error) <= 700 then job.last_error
    else pg_catalog."left"(job.last_error, 500) || E'\n' || pg_catalog."right"(job.last_error, 200) end"""
# The number of attempts that a list shows: `attempts.attempts_made`. The first part is greedy: it is the last remark.
_ATTEMPTS = rf"""case when job.attempts < job.max_attempts or job.last_error is null then job.attempts
    else coalesce(pg_catalog.substring(
        {ENDS_OF_ERROR}, '(?:^|.*\n)Not tried again after attempt ([0-9]{{1,5}}) of [0-9]{{1,5}}\.(?:\n|$)'
    )::int, job.attempts) end"""

# The names of a job that patterns can match. A queue is looked up by its id: the table of queues may be large.
NAMES = {
    "task": "(select identifier from :SCHEMA._private_tasks as task where task.id = job.task_id)",
    "queue": "(select queue_name from :SCHEMA._private_job_queues as queue where queue.id = job.job_queue_id)",
    "key": "job.key",
    "worker": ":SCHEMA._private_worker_of(job.locked_by)",
    "exception": ":SCHEMA._private_error_name(job.last_error)",
}
# A job waits for the key that blocks its lane, or has a place of a key.
_LIMIT_KEYS = """(
    select known.key_text from :SCHEMA._private_limited_jobs as parked
    join :SCHEMA._private_limit_lanes as lane on lane.id = parked.lane_id and lane.state = 2
    join :SCHEMA._private_limit_keys as known on known.id = lane.blocked_by
    where parked.job_id = job.id
    union all
    select known.key_text from :SCHEMA._private_limit_places as place
    join :SCHEMA._private_limit_keys as known on known.id = place.key_id
    where place.job_id = job.id and place.token = job.locked_by)"""
_FLAGS = "jsonb_object_keys(case when jsonb_typeof(job.flags) = 'object' then job.flags else '{}' end)"


def where_in_order(criteria: Criteria, *, run_at: str = "job.run_at", prefix: str = "") -> Clauses:
    """Return the conditions on columns of the indexes: each walk can include them at no cost.

    ``run_at`` is the column, or the expression, that has the due time.
    """
    clauses = Clauses(prefix)
    clauses.add_range("job.priority", "priority", "int", criteria.priority)
    clauses.add_range(run_at, "run_at", "timestamptz", criteria.run_at)
    return clauses


def where_looked_at(criteria: Criteria, prefix: str = "") -> Clauses:
    """Return the conditions for which the row of each job has to be read, without those of the groups."""
    clauses = Clauses(prefix)
    if criteria.state is State.SCHEDULED:
        clauses.add(jobs.NOT_TRIED)
    if criteria.states and not included_states(criteria.state) <= set(criteria.states):
        clauses.add(f"({' or '.join(_state(state) for state in criteria.states)})")
    if criteria.flags:
        flags = clauses.parameter("flags", list(criteria.flags), "text[]")
        clauses.add(f"coalesce(job.flags ?& {flags}, false)")
    for number, text in enumerate(criteria.errors):
        error = clauses.parameter(f"error_{number}", text, "text")
        clauses.add(f"position(lower({error}) in lower(coalesce(job.last_error, ''))) > 0")
    _add_payload(clauses, criteria)
    clauses.add_range(_ATTEMPTS, "attempts_made", "int", criteria.attempts)
    clauses.add_range("job.created_at", "created_at", "timestamptz", criteria.created_at)
    if criteria.unchanged_since is not None:
        since = clauses.parameter("unchanged_since", criteria.unchanged_since, "timestamptz")
        clauses.add(f"job.updated_at < {since}")
    if criteria.within is not None:
        text, parameters = criteria.within.named()
        clauses.add(f"job.id in ({text})")
        clauses.parameters |= parameters
    return clauses


def _state(state: State) -> str:
    condition = f"{jobs.IS_WAITING} and {jobs.NOT_TRIED}" if state is State.SCHEDULED else CONDITIONS[state]
    return f"({condition})"


def _add_payload(clauses: Clauses, criteria: Criteria) -> None:
    for number, (path, text) in enumerate(criteria.payload):
        value = clauses.parameter(f"value_{number}", text, "text")
        found = f"job.payload #>> {clauses.parameter(f'path_{number}', list(path), 'text[]')} = {value}"
        # The payload is read only if PostgreSQL can read it.
        clauses.add(f"case when {_READABLE} then coalesce({found}, false) else false end")
    for number, text in enumerate(criteria.payload_texts):
        texts = clauses.parameter(f"payload_text_{number}", written_forms(text), "text[]")
        found = f"exists (select from unnest({texts}) as form where position(form in lower(job.payload::text)) > 0)"
        clauses.add(f"case when pg_column_size(job.payload) <= {LARGEST_PAYLOAD} then {found} else false end")


def written_forms(text: str) -> list[str]:
    """Return the texts, in lower case, that JSON can have for a text: as it is, or with the escapes of a string.

    Escapes have no lower case, so a letter that is written as an escape may be meant in lower or in upper case.
    """
    cases = (text, text.lower(), text.upper(), text.capitalize())
    escaped = [json.dumps(each, ensure_ascii=is_ascii)[1:-1] for each in cases for is_ascii in (True, False)]
    return list(dict.fromkeys(form.lower() for form in (text, *escaped)))


def where_named(criteria: Criteria, prefix: str = "") -> Clauses:
    """Return the conditions on names: most walks find tasks, queues and error names by an index, others read rows."""
    clauses = Clauses(prefix)
    task_ids = "select id from :SCHEMA._private_tasks where identifier = "
    if criteria.tasks:
        clauses.add(f"job.task_id in ({task_ids}{clauses.names('tasks', criteria.tasks)})")
    if criteria.excluded_tasks:
        excluded = clauses.names("excluded_tasks", criteria.excluded_tasks)
        clauses.add(f"not job.task_id in ({task_ids}{excluded})")
    if criteria.queues:
        queue_ids = "select id from :SCHEMA._private_job_queues where queue_name = "
        clauses.add(f"coalesce(job.job_queue_id in ({queue_ids}{clauses.names('queues', criteria.queues)}), false)")
    if criteria.error_names:
        error_names = clauses.names("error_names", criteria.error_names)
        clauses.add(f"coalesce({NAMES['exception']} = {error_names}, false)")
    return clauses


def where_matched(criteria: Criteria, prefix: str = "") -> Clauses:
    """Return the conditions on workers and on names with wildcards."""
    clauses = Clauses(prefix)
    if criteria.workers:
        clauses.add(f"coalesce({NAMES['worker']} = {clauses.names('workers', criteria.workers)}, false)")
    for number, (name, patterns) in enumerate(criteria.patterns):
        matching = clauses.names(f"pattern_{number}", patterns)
        if name == "flag":
            clauses.add(f"exists (select from {_FLAGS} as flag where flag like {matching})")
        elif name == "limit":
            clauses.add(f"exists (select from {_LIMIT_KEYS} as known(text) where known.text like {matching})")
        else:
            clauses.add(f"coalesce({NAMES[name]} like {matching}, false)")
        if name == "exception":
            clauses.add(f"({jobs.HAS_FAILED})")
    return clauses


def where_grouped(criteria: Criteria, prefix: str = "", *, without: Sequence[int] = ()) -> Clauses:
    """Return the conditions of the groups and of excluded jobs, but not of the groups that a walk meets."""
    clauses = Clauses(prefix)
    for number, group in enumerate(criteria.any_of):
        if number not in without:
            members = [where_whole(each, f"{prefix}any_{number}_{place}_") for place, each in enumerate(group)]
            clauses.add(f"({' or '.join(f'({each.text()})' for each in members) or 'false'})")
            for member in members:
                clauses.parameters |= member.parameters
    for number, each in enumerate(criteria.none_of):
        excluded = where_whole(each, f"{prefix}none_{number}_")
        clauses.add(f"not ({excluded.text()})")
        clauses.parameters |= excluded.parameters
    return clauses


def where_whole(criteria: Criteria, prefix: str) -> Clauses:
    """Return the conditions of all criteria, for a row of which nothing is known."""
    clauses = where_in_order(criteria, run_at=TRUE_RUN_AT_OF_JOB, prefix=prefix)
    if criteria.ids:
        clauses.add(f"job.id = {clauses.names('ids', criteria.ids, 'bigint')}")
    if criteria.keys:
        clauses.add(f"coalesce(job.key = {clauses.names('keys', criteria.keys)}, false)")
    if criteria.error_names:
        # An error of a job that runs again is no longer its state.
        clauses.add(f"({jobs.HAS_FAILED})")
    for each in (where_looked_at, where_named, where_matched, where_grouped):
        clauses.add_all(each(criteria, prefix))
    return clauses
