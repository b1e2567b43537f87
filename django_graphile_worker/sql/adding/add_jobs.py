"""Add many jobs with few statements: jobs without a key as columns, jobs with a key as one JSON document of specs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.job_options import JobKeyMode
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.sql.adding.add_job import WIDTH, Added, add_job, added_columns, added_job
from django_graphile_worker.sql.adding.insert_jobs import insert_jobs_call, inserted_jobs
from django_graphile_worker.sql.adding.specs import Entry, element
from django_graphile_worker.sql.adding.unique_jobs import add_unique_jobs
from django_graphile_worker.sql.function_calls import call_statements
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor, Row


# A statement, and its parameters.
Call = tuple[str, tuple[Any, ...]]


class Batch(Frozen):
    """Neighbouring specs and their payloads that one statement can add; ``mode`` is None when no spec has a key."""

    mode: JobKeyMode | None
    specs: list[JobSpec]
    payloads: list[str]


def batches(entries: Iterable[Entry], *, most_entries: int, most_unkeyed: int, most_characters: int) -> Iterator[Batch]:
    """Cut a stream of entries into batches, where the job key mode changes or a statement would become too large.

    Only neighbours share a batch: jobs must get their ids in the order of the specs, and of several specs with the same
    key the last must win. A batch without keys may be smaller, so that its client and the server work at the same time.
    """
    specs: list[JobSpec] = []
    payloads: list[str] = []
    present: JobKeyMode | None = None
    size = 0
    for spec, payload in entries:
        mode = _mode(spec)
        is_full = size >= most_characters or len(specs) >= (most_unkeyed if present is None else most_entries)
        if specs and (is_full or not _can_join(mode, present)):
            yield Batch(mode=present, specs=specs, payloads=payloads)
            specs, payloads, present, size = [], [], None, 0
        present = mode if present is None else present
        specs.append(spec)
        payloads.append(payload)
        size += len(payload)
    if specs:
        yield Batch(mode=present, specs=specs, payloads=payloads)


def _mode(spec: JobSpec) -> JobKeyMode | None:
    if spec.unique is not None:
        # Unique jobs are not added with others, either.
        return JobKeyMode.UNSAFE_DEDUPE
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
        as (i pg_catalog.text, p pg_catalog.json, q pg_catalog.text, t pg_catalog.timestamptz, d pg_catalog.float8,
            m int, k pg_catalog.text, r int, f pg_catalog.text[]))
        with ordinality as spec(i, p, q, t, d, m, k, r, f, place)
)"""

_NOW_ONCE = "case when row_number() over () = 1 then now() end"

ADD_JOBS = call_statements("add_jobs", added_columns(_NOW_ONCE), "add_jobs", first=_SPECS, rest=", %s::boolean")
ADD_JOBS_BLINDLY = call_statements("add_jobs", "job.id", "add_jobs", first=_SPECS, rest=", %s::boolean")


def batch_call(batch: Batch, *, schema: str, notify: bool = True, returning: bool = True) -> Call:
    """Return the statement that adds a batch, and its parameters; ``jobs_of_batch`` reads the rows that it returns."""
    if batch.mode is JobKeyMode.UNSAFE_DEDUPE:
        raise ValueError("batch_call: expected jobs that one statement can add, got unsafe_dedupe.")
    if batch.mode is None:
        return insert_jobs_call(batch.specs, batch.payloads, schema=schema, notify=notify, returning=returning)
    return statement((ADD_JOBS if returning else ADD_JOBS_BLINDLY)[notify], schema), _parameters(batch)


def jobs_of_batch(rows: Sequence[Row], batch: Batch, *, schema: str) -> list[Job]:
    """Return the job of each spec of the batch, in their order, from the rows of its statement."""
    if batch.mode is None:
        return inserted_jobs(rows[0], batch.specs, batch.payloads, schema=schema)
    return _in_order(batch, rows)


def add_one_by_one(cursor: Cursor, batch: Batch, *, schema: str, notify: bool) -> list[Job]:
    """Add the jobs of a batch whose job key mode only ``add_job`` has, and unique jobs."""
    jobs: list[Job] = []
    for is_unique, some in groupby(_entries(batch), key=lambda entry: entry[0].unique is not None):
        if is_unique:
            jobs += add_unique_jobs(cursor, list(some), schema=schema, notify=notify)
        else:
            jobs += [add_job(cursor, *entry, schema=schema, notify=notify) for entry in some]
    return jobs


def _entries(batch: Batch) -> list[Entry]:
    return list(zip(batch.specs, batch.payloads, strict=True))


def _in_order(batch: Batch, rows: Sequence[Row]) -> list[Job]:
    """Return the job of each entry. Entries that share a key share a row, which holds the values of the last entry."""
    entries = _entries(batch)
    added = [Added._make(row[:WIDTH]) for row in rows]
    now = added[0].now
    last_entry = {entry[0].job_key: entry for entry in entries if entry[0].job_key is not None}
    keyed = {row.key: row for row in added if row.key is not None}
    jobs = {key: added_job(*last_entry[key], keyed[key], now) for key in last_entry}
    unkeyed = (row for row in added if row.key is None)
    return [
        added_job(*entry, next(unkeyed), now) if entry[0].job_key is None else jobs[entry[0].job_key]
        for entry in entries
    ]


def _parameters(batch: Batch) -> tuple[str, bool]:
    document = "[" + ",".join(map(element, batch.specs, batch.payloads)) + "]"
    return document, batch.mode is JobKeyMode.PRESERVE_RUN_AT
