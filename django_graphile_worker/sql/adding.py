"""Statements that add jobs: one job, many with few statements, and unique jobs.

``add_job()`` adds one job, with a key or without. ``batches()`` cuts many into what a statement takes, and
``add_batch()`` adds them: payloads alone as columns, jobs with options or keys as one JSON document. Unique jobs are
those of which no second one may wait or run, or may have been added within a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from json.encoder import encode_basestring as quoted
from operator import attrgetter
from typing import Any, NamedTuple

from django_graphile_worker import simulation
from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.job_options import DEFAULT_MAX_ATTEMPTS, SQL_OPTIONS, JobKeyMode, JobOption, Kind, Unique
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.payloads import decode, decode_leniently
from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.jobs import JOB_COLUMNS, get_jobs, is_infinite, job_from, jobs_from, with_true_times
from django_graphile_worker.sql.statements import MOMENT, Cursor, Row, call_statements, moment, statement

# A spec, and its payload as JSON text.
Entry = tuple[JobSpec, str]

_NO_FLAGS: frozenset[str] = frozenset()


# The options that the type job_spec has, in the order of its columns.
_SPEC_OPTIONS = tuple(option for option in SQL_OPTIONS if option.name != "job_key_mode")
_spec_values = attrgetter(*(option.name for option in _SPEC_OPTIONS))
_NO_VALUES = (None,) * len(_SPEC_OPTIONS)


def _member_of(option: JobOption) -> Callable[[Any], str]:
    """Return the function that writes a value of the option as a member of a JSON object."""
    name = f'"{option.name}":'
    match option.kind:
        case Kind.NUMBER:
            return lambda number: f"{name}{number}"
        case Kind.TIME:
            return lambda time: (
                f'"delay":{time.total_seconds()!r}' if isinstance(time, timedelta) else f'{name}"{time.isoformat()}"'
            )
        case Kind.TEXTS:
            return lambda texts: f"{name}[{','.join(map(quoted, texts))}]"
        case _:
            return lambda text: name + quoted(text)


_members = [_member_of(option) for option in _SPEC_OPTIONS]


def element(spec: JobSpec, payload: str) -> str:
    """Return a spec as JSON, with its payload unchanged, and without the options that the spec leaves out."""
    parts = [f'{{"identifier":{quoted(spec.identifier)},"payload":{payload}']
    for member, value in zip(_members, _spec_values(spec), strict=True):
        if value is not None:
            parts.append(member(value))
    return ",".join(parts) + "}"


def new_job(spec: JobSpec, payload: str, job_id: int, now: datetime, run_at: datetime) -> Job:
    """Return the job that was inserted for a spec without a key; its payload is decoded when it is first read."""
    return Job.of_checked_values(
        {
            "id": job_id,
            "task_identifier": spec.identifier,
            "_json": payload,
            "queue_name": spec.queue_name,
            "priority": spec.priority or 0,
            "run_at": run_at,
            "attempts": 0,
            "max_attempts": spec.max_attempts or DEFAULT_MAX_ATTEMPTS,
            "last_error": None,
            "created_at": now,
            "updated_at": now,
            "key": None,
            "locked_at": None,
            "locked_by": None,
            "revision": 0,
            "flags": frozenset(spec.flags) if spec.flags else _NO_FLAGS,
        }
    )


def not_inserted(schema: str) -> SchemaError:
    """Return the error for a spec for which no row came back."""
    return SchemaError(
        f"The database returned no job. Either the functions in the schema {schema!r} are those of another program: "
        'run "manage.py graphile_worker repair". Or a trigger on its table of jobs keeps rows from being inserted: '
        "drop it."
    )


def added_columns(now: str) -> str:
    """Return the columns whose values the database decides when it adds a job.

    The payload is among them, because an array may have been appended to the payload of a waiting job. Reading a time
    takes Python longest, and most times are the time of the transaction: these are returned as null.
    """
    times = [f"nullif({readable(column)}, now())" for column in ("job.run_at", "job.created_at", "job.updated_at")]
    return f"""
        {now}, job.id, job.priority, job.attempts, job.max_attempts, job.revision, {", ".join(times)},
        case when job.key is not null then job.payload::text end, job.key"""


class Added(NamedTuple):
    """A row of ``added_columns``."""

    now: datetime
    id: int | None
    priority: int
    attempts: int
    max_attempts: int
    revision: int
    run_at: datetime | None
    created_at: datetime | None
    updated_at: datetime | None
    payload: str | None
    key: str | None


WIDTH = len(Added._fields)

_PLACEHOLDERS = [MOMENT if option.kind is Kind.TIME else f"%s::{option.sql_type}" for option in SQL_OPTIONS]
_ARGUMENTS = ", %s::json, " + ", ".join(_PLACEHOLDERS)

ADD_JOB = call_statements("add_job", added_columns("now()"), "add_job", first="%s::text", rest=_ARGUMENTS)

# The same for a job without a key and without a time, which is the usual one. PostgreSQL parses and plans the statement
# for every call, so it is as short as possible. All arguments are given, because PostgreSQL would read the text of the
# defaults otherwise, and none has a type: there is one function of this name.
ADD_JOB_NOW = """/* gw:add_job */
    select (:SCHEMA.add_job(%s, %s, %s, null, %s, null, %s, %s, null)).id, now()"""


def add_job(cursor: Cursor, spec: JobSpec, payload: str, *, schema: str, notify: bool = True) -> Job:
    """Add one job; ``payload`` is the payload of the spec as JSON text."""
    if spec.unique is not None:
        return add_unique_jobs(cursor, [(spec, payload)], schema=schema, notify=notify)[0]
    if spec.job_key is None and spec.run_at is None and notify:
        return _add_now(cursor, spec, payload, schema=schema)
    if spec.job_key_mode is JobKeyMode.UNSAFE_DEDUPE:
        return _add_unless_known(cursor, spec, payload, schema=schema, notify=notify)
    cursor.execute(statement(ADD_JOB[notify], schema), _parameters(spec, payload))
    row = Added._make(cursor.fetchone()[:WIDTH])
    _require(row.id, schema)
    job = added_job(spec, payload, row, row.now)
    return with_true_times(cursor, [job], schema=schema)[0] if row.run_at and is_infinite(row.run_at) else job


def _add_now(cursor: Cursor, spec: JobSpec, payload: str, *, schema: str) -> Job:
    flags = list(spec.flags) if spec.flags else None
    parameters = (spec.identifier, payload, spec.queue_name, spec.max_attempts, spec.priority, flags)
    cursor.execute(statement(ADD_JOB_NOW, schema), parameters)
    job_id, now = cursor.fetchone()
    _require(job_id, schema)
    return new_job(spec, payload, job_id, now, now)


# The place of the revision in JOB_COLUMNS. It is zero until a job with the same key is added.
_REVISION = 14
# A role that may only add jobs cannot read the names of a job that existed before.
_CAN_READ_NAMES = "has_table_privilege(':SCHEMA._private_tasks'::regclass, 'select')"
_CAN_READ_NAMES_PLACE = _REVISION + 2

ADD_JOB_UNLESS_KNOWN = call_statements(
    "add_job", f"{JOB_COLUMNS}, {_CAN_READ_NAMES}", "add_job", first="%s::text", rest=_ARGUMENTS
)


def _add_unless_known(cursor: Cursor, spec: JobSpec, payload: str, *, schema: str, notify: bool) -> Job:
    cursor.execute(statement(ADD_JOB_UNLESS_KNOWN[notify], schema), _parameters(spec, payload))
    row = cursor.fetchone()
    _require(row[0], schema)
    if row[_REVISION] > 0 and row[_CAN_READ_NAMES_PLACE]:
        return jobs_from(cursor, [row], schema=schema)[0].as_existing()
    job = job_from(row, {("task", row[1]): spec.identifier, ("queue", row[2]): spec.queue_name or ""})
    return job.as_existing() if job.revision > 0 else job


def _parameters(spec: JobSpec, payload: str) -> list[Any]:
    """Return the parameters of _ARGUMENTS, with the task identifier before them."""
    parameters: list[Any] = [spec.identifier, payload]
    for option, value in zip(_SPEC_OPTIONS, _spec_values(spec), strict=True):
        if option.kind is Kind.TIME:
            parameters += moment(value)
        else:
            parameters.append(list(value) if isinstance(value, tuple) else value)
    return [*parameters, str(spec.job_key_mode or JobKeyMode.REPLACE)]


def added_job(spec: JobSpec, payload: str, row: Added, now: datetime) -> Job:
    """Return the job that was added for a spec, with the values that the database set."""
    return Job(
        id=row.id,  # type: ignore[arg-type]  # the caller has checked it
        task_identifier=spec.identifier,
        payload=decode(payload) if row.payload is None else decode_leniently(row.payload),
        queue_name=spec.queue_name,
        priority=row.priority,
        run_at=row.run_at or now,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        last_error=None,
        created_at=row.created_at or now,
        updated_at=row.updated_at or now,
        key=spec.job_key,
        locked_at=None,
        locked_by=None,
        revision=row.revision,
        flags=frozenset(spec.flags or ()),
    )


def _require(job_id: int | None, schema: str) -> None:
    if job_id is None:
        raise not_inserted(schema)


# How many jobs without a key one statement adds. More are not faster, and need more memory.
MAX_UNKEYED = 1_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Neighbouring specs and their payloads that one statement can add; ``mode`` is None when no spec has a key."""

    mode: JobKeyMode | None
    specs: list[JobSpec]
    payloads: list[str]

    @property
    def is_one_statement(self) -> bool:
        """Return whether one statement adds the jobs."""
        return self.mode is not JobKeyMode.UNSAFE_DEDUPE or len(self.specs) == 1

    @property
    def entries(self) -> list[Entry]:
        """Return the specs, each with its payload."""
        return list(zip(self.specs, self.payloads, strict=True))


def batches(entries: Iterable[Entry], *, max_keyed: int, max_characters: int) -> Iterator[Batch]:
    """Cut a stream of entries into batches, where the job key mode changes or a statement would become too large.

    Only neighbours share a batch: jobs must get their ids in the order of the specs, and of several specs with the same
    key the last must win.
    """
    specs: list[JobSpec] = []
    payloads: list[str] = []
    present: JobKeyMode | None = None
    size = 0
    for spec, payload in entries:
        mode = _mode(spec)
        if specs and not _can_join(mode, present):
            yield Batch(present, specs, payloads)
            specs, payloads, present, size = [], [], None, 0
        present = mode if present is None else present
        specs.append(spec)
        payloads.append(payload)
        size += len(payload)
        if size >= max_characters or len(specs) >= (MAX_UNKEYED if present is None else max_keyed):
            yield Batch(present, specs, payloads)
            specs, payloads, present, size = [], [], None, 0
    if specs:
        yield Batch(present, specs, payloads)


def _mode(spec: JobSpec) -> JobKeyMode | None:
    if spec.unique is not None:
        # Unique jobs are not added with others, either.
        return JobKeyMode.UNSAFE_DEDUPE
    return None if spec.job_key is None else spec.job_key_mode or JobKeyMode.REPLACE


def _can_join(mode: JobKeyMode | None, present: JobKeyMode | None) -> bool:
    if mode is None:
        return present is not JobKeyMode.UNSAFE_DEDUPE
    return mode == present or (present is None and mode is not JobKeyMode.UNSAFE_DEDUPE)


# A payload is a line: the encoder escapes line breaks.
_PLAIN_SPECS = rf"""array(
    select (spec.identifier, spec.payload::json{", null" * len(_SPEC_OPTIONS)}):::SCHEMA.job_spec
    from rows from (unnest(%s::pg_catalog.text[]), string_to_table(%s::pg_catalog.text, E'\n'))
        with ordinality as spec(identifier, payload, place)
    order by spec.place
)"""


def _specs() -> str:
    """Return the specs of a JSON document, whose times may be delays from the database's now."""
    columns = ", ".join(f"{option.name} {option.sql_type}" for option in _SPEC_OPTIONS)
    names = ", ".join(option.name for option in _SPEC_OPTIONS)
    values = names.replace("run_at", "coalesce(run_at, now() + delay * interval '1 second')")
    return f"""(
    select array_agg((identifier, payload, {values}):::SCHEMA.job_spec order by place)
    from rows from (json_to_recordset(%s::json)
        as (identifier pg_catalog.text, payload pg_catalog.json, {columns}, delay pg_catalog.float8))
        with ordinality as spec(identifier, payload, {names}, delay, place)
)"""


_SPECS = _specs()

_NOW_ONCE = "case when row_number() over () = 1 then now() end"

ADD_PLAIN_JOBS = call_statements("add_jobs", f"job.id, {_NOW_ONCE}", "add_jobs", first=_PLAIN_SPECS, rest=", false")
ADD_PLAIN_JOBS_BLINDLY = call_statements("add_jobs", "job.id", "add_jobs", first=_PLAIN_SPECS, rest=", false")
ADD_JOBS = call_statements("add_jobs", added_columns(_NOW_ONCE), "add_jobs", first=_SPECS, rest=", %s::boolean")
ADD_JOBS_BLINDLY = call_statements("add_jobs", "job.id", "add_jobs", first=_SPECS, rest=", %s::boolean")


def add_batch(cursor: Cursor, batch: Batch, *, schema: str, notify: bool = True) -> list[Job]:
    """Add the jobs of a batch, and return the job of each spec, in their order."""
    if batch.mode is JobKeyMode.UNSAFE_DEDUPE:
        return _add_one_by_one(cursor, batch, schema=schema, notify=notify)
    if _is_plain(batch):
        cursor.execute(statement(ADD_PLAIN_JOBS[notify], schema), _columns(batch))
        rows = _rows(cursor, batch, schema)
        now = rows[0][1]
        return [
            new_job(spec, payload, row[0], now, now)
            for spec, payload, row in zip(batch.specs, batch.payloads, rows, strict=True)
        ]
    cursor.execute(statement(ADD_JOBS[notify], schema), _document(batch))
    jobs = _in_order(batch, _rows(cursor, batch, schema))
    # A job that waits for a limit, and whose time was preserved, has its true time elsewhere.
    return with_true_times(cursor, jobs, schema=schema) if batch.mode is JobKeyMode.PRESERVE_RUN_AT else jobs


def add_batch_blindly(cursor: Cursor, batch: Batch, *, schema: str, notify: bool = True) -> None:
    """Add the jobs of a batch, and read nothing back."""
    if batch.mode is JobKeyMode.UNSAFE_DEDUPE:
        _add_one_by_one(cursor, batch, schema=schema, notify=notify)
    elif _is_plain(batch):
        cursor.execute(statement(ADD_PLAIN_JOBS_BLINDLY[notify], schema), _columns(batch))
    else:
        cursor.execute(statement(ADD_JOBS_BLINDLY[notify], schema), _document(batch))


def _is_plain(batch: Batch) -> bool:
    """Return whether all specs are a task and a payload, without an option."""
    return batch.mode is None and all(_spec_values(spec) == _NO_VALUES for spec in batch.specs)


def _columns(batch: Batch) -> tuple[str, str]:
    return text_array(spec.identifier for spec in batch.specs), "\n".join(batch.payloads)


def _document(batch: Batch) -> tuple[str, bool]:
    document = "[" + ",".join(map(element, batch.specs, batch.payloads)) + "]"
    return document, batch.mode is JobKeyMode.PRESERVE_RUN_AT


def _rows(cursor: Cursor, batch: Batch, schema: str) -> list[Row]:
    rows: list[Row] = cursor.fetchall()
    if len(rows) != len(batch.specs) or rows[0][0] is None:
        raise not_inserted(schema)
    return rows


def _add_one_by_one(cursor: Cursor, batch: Batch, *, schema: str, notify: bool) -> list[Job]:
    """Add the jobs of a batch whose job key mode only ``add_job`` has, and unique jobs."""
    jobs: list[Job] = []
    for is_unique, some in groupby(batch.entries, key=lambda entry: entry[0].unique is not None):
        if is_unique:
            jobs += add_unique_jobs(cursor, list(some), schema=schema, notify=notify)
        else:
            jobs += [add_job(cursor, *entry, schema=schema, notify=notify) for entry in some]
    return jobs


def _in_order(batch: Batch, rows: Sequence[Row]) -> list[Job]:
    """Return the job of each entry. Entries that share a key share a row, which holds the values of the last entry."""
    added = [Added._make(row[:WIDTH]) for row in rows]
    now = added[0].now
    last_entry = {entry[0].job_key: entry for entry in batch.entries}
    return [
        added_job(*(entry if row.key is None else last_entry[row.key]), row, now)
        for entry, row in zip(batch.entries, added, strict=True)
    ]


# How many entries of unique jobs one statement looks at whose jobs may have ended.
MAX_FORGOTTEN = 1_000

ADD_UNIQUE_JOBS = """/* gw:add_unique_jobs */
    select added.job_id, added.is_new, added.added_at, added.run_at, now(),
        has_table_privilege(':SCHEMA._private_jobs'::regclass, 'select')
    from :SCHEMA._private_add_unique_jobs(%s::json, %s::boolean, %s::timestamptz) as added"""


class _AddedUnique(NamedTuple):
    """A row of ADD_UNIQUE_JOBS."""

    id: int
    is_new: bool
    added_at: datetime
    run_at: datetime
    now: datetime
    can_read: bool


def add_unique_jobs(cursor: Cursor, entries: Sequence[Entry], *, schema: str, notify: bool = True) -> list[Job]:
    """Add the jobs that are not there, and return the job of each spec."""
    now = None if simulation.now is None else simulation.now()
    document = "[" + ",".join(_unique_element(*entry) for entry in entries) + "]"
    cursor.execute(statement(ADD_UNIQUE_JOBS, schema), (document, not notify, now))
    rows = [_AddedUnique._make(row) for row in cursor.fetchall()]
    # One statement for all of them: most of a large call may be there.
    existing = [row.id for row in rows if not row.is_new and row.can_read]
    known = get_jobs(cursor, existing, schema=schema) if existing else {}
    return [_unique_job(*entry, row, known) for entry, row in zip(entries, rows, strict=True)]


def _unique_job(spec: JobSpec, payload: str, row: _AddedUnique, known: Mapping[int, Job]) -> Job:
    if row.is_new:
        return new_job(spec, payload, row.id, row.now, row.run_at)
    # A job that has ended is known by its id alone.
    return (known.get(row.id) or new_job(spec, payload, row.id, row.added_at, row.added_at)).as_existing()


def _unique_element(spec: JobSpec, payload: str) -> str:
    """Return a spec as JSON, with the key under which it is unique, and the seconds for which ended jobs count."""
    assert spec.unique is not None
    parts = [element(spec, payload)[:-1], f'"unique_key":{quoted(_unique_key(spec.unique, payload))}']
    if spec.unique.window is not None:
        parts.append(f'"unique_for":{spec.unique.window!r}')
    return ",".join(parts) + "}"


def _unique_key(unique: Unique, payload: str) -> str:
    """Return the text that is compared. The order of the keys of an object does not matter."""
    if isinstance(unique.key, str):
        return f"key:{unique.key}"
    equal = json.dumps(decode_leniently(payload), sort_keys=True, separators=(",", ":"))
    return f"payload:{hashlib.sha256(equal.encode()).hexdigest()}"


FORGET_UNIQUE_JOBS = """/* gw:forget_unique_jobs */
    select :SCHEMA._private_forget_unique_jobs(%s::integer, %s::timestamptz)"""


def forget_unique_jobs(cursor: Cursor, *, schema: str, now: datetime | None = None) -> bool:
    """Delete entries whose job has ended and whose time is over; return whether there may be more of them."""
    cursor.execute(statement(FORGET_UNIQUE_JOBS, schema), (MAX_FORGOTTEN, now))
    return bool(cursor.fetchone()[0] >= MAX_FORGOTTEN)
