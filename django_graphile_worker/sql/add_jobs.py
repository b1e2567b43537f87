"""Add many jobs with few statements; each statement has one JSON document of specs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, NamedTuple

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.jobs import Job, JobKeyMode, JobSpec
from django_graphile_worker.sql.add_job import WIDTH, Added, add_job, added_columns, added_job
from django_graphile_worker.sql.function_calls import call_statements
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor, Row


class Entry(NamedTuple):
    """A spec, and its payload as JSON text (None for the default)."""

    spec: JobSpec
    payload: str | None


class Batch(Frozen):
    """Neighbouring entries that one statement can add; ``mode`` is None when no entry has a key."""

    mode: JobKeyMode | None
    entries: list[Entry]


def batches(entries: Iterable[Entry], *, most_entries: int, most_characters: int) -> Iterator[Batch]:
    """Cut a stream of entries into batches, where the job key mode changes or a statement would become too large.

    Only neighbours share a batch: jobs must get their ids in the order of the specs, and of several specs with the same
    key the last must win.
    """
    collected: list[Entry] = []
    present: JobKeyMode | None = None
    size = 0
    for entry in entries:
        mode = _mode(entry.spec)
        is_full = len(collected) >= most_entries or size >= most_characters
        if collected and (is_full or not _can_join(mode, present)):
            yield Batch(mode=present, entries=collected)
            collected, present, size = [], None, 0
        present = mode if present is None else present
        collected.append(entry)
        size += len(entry.payload or "")
    if collected:
        yield Batch(mode=present, entries=collected)


def _mode(spec: JobSpec) -> JobKeyMode | None:
    return None if spec.job_key is None else spec.job_key_mode or JobKeyMode.REPLACE


def _can_join(mode: JobKeyMode | None, present: JobKeyMode | None) -> bool:
    if mode is None:
        return present is not JobKeyMode.UNSAFE_DEDUPE
    return mode == present or (present is None and mode is not JobKeyMode.UNSAFE_DEDUPE)


_SPECS = """(
    select array_agg(
        (spec.i, spec.p, spec.q, coalesce(spec.t, now() + spec.d * interval '1 second'),
         spec.m, spec.k, spec.r, spec.f):::SCHEMA.job_spec
        order by spec.place)
    from rows from (json_to_recordset(%s::json)
        as (i text, p json, q text, t timestamptz, d float8, m int, k text, r int, f text[]))
        with ordinality as spec(i, p, q, t, d, m, k, r, f, place)
)"""

_NOW_ONCE = "case when row_number() over () = 1 then now() end"

ADD_JOBS = call_statements("add_jobs", added_columns(_NOW_ONCE), "add_jobs", first=_SPECS, rest=", %s::boolean")
ADD_JOBS_BLINDLY = call_statements("add_jobs", "job.id", "add_jobs", first=_SPECS, rest=", %s::boolean")


def add_batch(cursor: Cursor, batch: Batch, *, schema: str, notify: bool = True) -> list[Job]:
    """Add a batch and return a job for each of its entries, in their order."""
    if batch.mode is JobKeyMode.UNSAFE_DEDUPE:
        return _add_one_by_one(cursor, batch, schema=schema, notify=notify)
    cursor.execute(statement(ADD_JOBS[notify], schema), _parameters(batch))
    return _in_order(batch.entries, cursor.fetchall())


def add_batch_blindly(cursor: Cursor, batch: Batch, *, schema: str, notify: bool = True) -> None:
    """Add a batch without reading the jobs back."""
    if batch.mode is JobKeyMode.UNSAFE_DEDUPE:
        _add_one_by_one(cursor, batch, schema=schema, notify=notify)
    else:
        cursor.execute(statement(ADD_JOBS_BLINDLY[notify], schema), _parameters(batch))


def _add_one_by_one(cursor: Cursor, batch: Batch, *, schema: str, notify: bool) -> list[Job]:
    return [add_job(cursor, entry.spec, entry.payload, schema=schema, notify=notify) for entry in batch.entries]


def _in_order(entries: Sequence[Entry], rows: Sequence[Row]) -> list[Job]:
    """Return the job of each entry. Entries that share a key share a row, which holds the values of the last entry."""
    added = [Added._make(row[:WIDTH]) for row in rows]
    now = added[0].now
    last_entry = {entry.spec.job_key: entry for entry in entries if entry.spec.job_key is not None}
    keyed = {row.key: row for row in added if row.key is not None}
    jobs = {key: added_job(*last_entry[key], keyed[key], now) for key in last_entry}
    unkeyed = (row for row in added if row.key is None)
    return [
        added_job(*entry, next(unkeyed), now) if entry.spec.job_key is None else jobs[entry.spec.job_key]
        for entry in entries
    ]


def _parameters(batch: Batch) -> tuple[str, bool]:
    document = "[" + ",".join(map(_element, batch.entries)) + "]"
    return document, batch.mode is JobKeyMode.PRESERVE_RUN_AT


def _element(entry: Entry) -> str:
    """Return a spec as JSON, with its payload unchanged, and without the options that the spec leaves out."""
    spec, payload = entry
    parts = [f'"i":{quoted(spec.identifier)}']
    if payload is not None:
        parts.append(f'"p":{payload}')
    if spec.queue_name is not None:
        parts.append(f'"q":{quoted(spec.queue_name)}')
    if spec.run_at is not None:
        parts.append(_time(spec))
    if spec.max_attempts is not None:
        parts.append(f'"m":{spec.max_attempts}')
    if spec.job_key is not None:
        parts.append(f'"k":{quoted(spec.job_key)}')
    if spec.priority is not None:
        parts.append(f'"r":{spec.priority}')
    if spec.flags is not None:
        parts.append(f'"f":[{",".join(map(quoted, spec.flags))}]')
    return "{" + ",".join(parts) + "}"


def _time(spec: JobSpec) -> str:
    run_at = spec.run_at
    if isinstance(run_at, timedelta):
        return f'"d":{run_at.total_seconds()!r}'
    return f'"t":"{run_at.isoformat()}"' if run_at is not None else '"t":null'
